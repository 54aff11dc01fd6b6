import { Inject, Module, type OnModuleInit } from '@nestjs/common';
import { ApplicationConfig, ModulesContainer } from '@nestjs/core';
import { refuseRequestKeys } from './refuse-request-keys.js';
import { refuseUninjected } from './refuse-uninjected.js';
import { warnOfDecorators } from './warn-of-decorators.js';

/**
 * Looks at the decorated methods of an application when it starts, for what would only be seen at a call, or never. Every
 * registration imports it, and an application has one instance.
 */
@Module({})
export class DecoratorChecksModule implements OnModuleInit {
  constructor(
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
    @Inject(ApplicationConfig) private readonly config: ApplicationConfig,
  ) {}

  /** All instances are there. @throws LockOptionsError */
  onModuleInit(): void {
    refuseUninjected(this.modules);
    refuseRequestKeys(this.modules, this.config);
    warnOfDecorators(this.modules);
  }
}
