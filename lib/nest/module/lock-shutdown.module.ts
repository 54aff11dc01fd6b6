import { Inject, Module, type OnModuleDestroy } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { Shutdown } from '../../core/service/shutdown.js';

/** Every registration imports it, and an application has one instance: its registrations close together. */
@Module({ providers: [Shutdown], exports: [Shutdown] })
export class LockShutdownModule implements OnModuleDestroy {
  constructor(
    @Inject(ModulesContainer) modules: ModulesContainer,
    @Inject(Shutdown) private readonly shutdown: Shutdown,
  ) {
    // When an application closes, Nest calls the hooks of modules by their distance from the root module, which has 1, and
    // those of global modules last. This one goes first: a module may wait in its hook for work that is asked to end here.
    for (const module of modules.values()) if (module.metatype === LockShutdownModule) module.distance = 0;
  }

  onModuleDestroy(): void {
    this.shutdown.begin();
  }
}
