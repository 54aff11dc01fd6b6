import { Inject, Module, type DynamicModule } from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';
import { moduleOf } from './nest-modules.js';
import {
  ConfigurableModuleClass,
  OPTIONS,
  type ASYNC_OPTIONS_TYPE,
  type OPTIONS_TYPE,
} from './redis-lock.module-definition.js';
import { refuseBare } from './registrations.js';
import { refuseUninjected } from './refuse-uninjected.js';

const ASYNC_FORMS = ['useFactory', 'useClass', 'useExisting'] as const;
const ASYNC_OPTIONS = [...ASYNC_FORMS, 'inject', 'imports', 'provideInjectionTokensFrom', 'isGlobal', 'name'];

/**
 * Provides `LockService`, and with it what `@Locked` needs.
 */
@Module({})
export class RedisLockModule extends ConfigurableModuleClass {
  readonly #modules: ModulesContainer;

  /** @internal Nest makes one for each registration. */
  constructor(@Inject(ModulesContainer) modules: ModulesContainer, @Inject(ModuleRef) ref: ModuleRef) {
    super();
    this.#modules = modules;
    const module = moduleOf(ref, modules);
    if (!module.providers.has(OPTIONS)) refuseBare(module, modules);
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
    return super.forRoot(anObject('forRoot', options));
  }

  /**
   * `forRootAsync({ imports, inject, useFactory | useClass | useExisting })`, with `isGlobal` and `name` beside.
   * @throws LockOptionsError here or when the application starts
   */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    const given = Object.keys(anObject('forRootAsync', options));
    const unknown = given.find((name) => !ASYNC_OPTIONS.includes(name));
    if (unknown !== undefined) {
      throw new LockOptionsError(
        `RedisLockModule.forRootAsync has no option "${unknown}": expected ${ASYNC_OPTIONS.join(', ')}. ` +
          'What forRoot takes is what the factory returns.',
      );
    }
    const forms = ASYNC_FORMS.filter((form) => options[form] !== undefined);
    if (forms.length !== 1) {
      throw new LockOptionsError(
        `RedisLockModule.forRootAsync needs exactly one of ${ASYNC_FORMS.join(', ')}: ` +
          `got ${forms.join(' and ') || 'none of them'}.`,
      );
    }
    return super.forRootAsync(options);
  }
}

function anObject<T>(method: string, options: T): T {
  if (typeof options === 'object' && options !== null) return options;
  throw new LockOptionsError(`RedisLockModule.${method} needs an object with options: got ${typeof options}.`);
}
