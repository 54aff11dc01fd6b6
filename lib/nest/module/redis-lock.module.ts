import { Module, type DynamicModule } from '@nestjs/common';
import { REDIS, type RedisLockModuleOptions } from '../../compose/redis-lock-options.js';
import { anAsyncForm, anObject, lockModuleDefinition, type LockModuleKind } from './lock.module-definition.js';

const OPTIONS = Symbol('RedisLockModuleOptions');
const KIND: LockModuleKind<RedisLockModuleOptions> = { name: 'RedisLockModule', store: REDIS };

const { ConfigurableModuleClass, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } = lockModuleDefinition(
  KIND,
  OPTIONS,
  'createRedisLockOptions',
);

/** Provides `LockService`, which you can inject and which `@Locked` uses. */
@Module({})
export class RedisLockModule extends ConfigurableModuleClass {
  /**
   * Registers the module: `forRoot({ redis: 'redis://localhost:6379' })`, `forRoot({ redlock: [...] })` or
   * `forRoot({ memory: true })`. `isGlobal` (default true) and `name` (for a second registration) go in the same object.
   * @throws LockOptionsError here or when the application starts
   */
  static override forRoot(options: typeof OPTIONS_TYPE): DynamicModule {
    return super.forRoot(anObject('RedisLockModule.forRoot', options));
  }

  /**
   * Registers the module with options that are made later: `forRootAsync({ imports, inject, useFactory | useClass | useExisting })`.
   * `isGlobal` and `name` go in the same object.
   * @throws LockOptionsError here or when the application starts
   */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    return super.forRootAsync(anAsyncForm('RedisLockModule.forRootAsync', options));
  }
}
