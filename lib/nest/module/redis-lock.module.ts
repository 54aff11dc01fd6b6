import { Inject, Module, type DynamicModule } from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import { composeLocks } from '../../compose/open-locks.js';
import type { RedisLockModuleOptions } from '../../compose/redis-lock-options.js';
import { anAsyncForm, anObject, lockModuleDefinition } from './lock.module-definition.js';
import type { LockModuleKind } from './lock-service.provider.js';
import { moduleOf } from './nest-modules.js';
import { refuseBare } from './registrations.js';
import { refuseUninjected } from './refuse-uninjected.js';

const OPTIONS = Symbol('RedisLockModuleOptions');
const KIND: LockModuleKind<RedisLockModuleOptions> = { name: 'RedisLockModule', compose: composeLocks };

const { ConfigurableModuleClass, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } = lockModuleDefinition(
  KIND,
  OPTIONS,
  'createRedisLockOptions',
);

/**
 * Provides `LockService`, which `@Locked` needs, too.
 */
@Module({})
export class RedisLockModule extends ConfigurableModuleClass {
  readonly #modules: ModulesContainer;

  /** @internal Nest makes one for each registration. */
  constructor(@Inject(ModulesContainer) modules: ModulesContainer, @Inject(ModuleRef) ref: ModuleRef) {
    super();
    this.#modules = modules;
    const module = moduleOf(ref, modules);
    if (!module.providers.has(OPTIONS)) refuseBare(KIND.name, module, modules);
  }

  /** @internal Nest calls it when all instances are there. */
  onModuleInit(): void {
    const registrations = [...this.#modules.values()].filter(({ metatype }) => metatype === RedisLockModule);
    const instances: object[] = registrations.map(({ instance }) => instance);
    if (instances[0] === this) refuseUninjected(this.#modules); // once for all of them
  }

  /**
   * `forRoot({ redis: 'redis://localhost:6379' })`, `forRoot({ redlock: [...] })` or `forRoot({ memory: true })`; with
   * `isGlobal` (default true) and `name` (for a second registration) beside the options.
   * @throws LockOptionsError here or when the application starts
   */
  static override forRoot(options: typeof OPTIONS_TYPE): DynamicModule {
    return super.forRoot(anObject(KIND.name, 'forRoot', options));
  }

  /**
   * `forRootAsync({ imports, inject, useFactory | useClass | useExisting })`, with `isGlobal` and `name` beside.
   * @throws LockOptionsError here or when the application starts
   */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    return super.forRootAsync(anAsyncForm(KIND.name, options));
  }
}
