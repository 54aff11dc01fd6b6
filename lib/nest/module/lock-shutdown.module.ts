import { Inject, Module, type OnModuleDestroy } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { Shutdown } from '../../core/service/shutdown.js';

/** Every registration imports this module, and an application has one instance, so that its registrations close together. */
@Module({ providers: [Shutdown], exports: [Shutdown] })
export class LockShutdownModule implements OnModuleDestroy {
  constructor(
    @Inject(ModulesContainer) modules: ModulesContainer,
    @Inject(Shutdown) private readonly shutdown: Shutdown,
  ) {
    // On close, Nest calls the hooks of modules by their distance: the root module (1) first, global modules last. This module must be
    // first, since another module may wait in its hook for work that only ends when this one has begun the shutdown.
    for (const module of modules.values()) if (module.metatype === LockShutdownModule) module.distance = 0;
  }

  onModuleDestroy(): void {
    this.shutdown.begin();
  }
}
