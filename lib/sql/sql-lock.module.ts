import { Module, type DynamicModule } from '@nestjs/common';
import { SQL, type SqlLockModuleOptions } from '../compose/sql-lock-options.js';
import {
  anAsyncForm,
  anObject,
  lockModuleDefinition,
  type LockModuleKind,
} from '../nest/module/lock.module-definition.js';

const OPTIONS = Symbol('SqlLockModuleOptions');
const KIND: LockModuleKind<SqlLockModuleOptions> = { name: 'SqlLockModule', store: SQL };

const { ConfigurableModuleClass, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } = lockModuleDefinition(
  KIND,
  OPTIONS,
  'createSqlLockOptions',
);

/** Provides `LockService` on a table of the application's database. Everything else is as with `RedisLockModule`. */
@Module({})
export class SqlLockModule extends ConfigurableModuleClass {
  /**
   * Registers the module: `forRoot({ postgres: 'postgres://user:password@host:5432/database' })`, or `postgres: pool`, or `mysql`.
   * `isGlobal` (default true) and `name` (for a second registration) go in the same object.
   * @throws LockOptionsError here or when the application starts
   */
  static override forRoot(options: typeof OPTIONS_TYPE): DynamicModule {
    return super.forRoot(anObject('SqlLockModule.forRoot', options));
  }

  /**
   * Registers the module with options that are made later: `forRootAsync({ imports, inject, useFactory | useClass | useExisting })`.
   * `isGlobal` and `name` go in the same object.
   * @throws LockOptionsError here or when the application starts
   */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    return super.forRootAsync(anAsyncForm('SqlLockModule.forRootAsync', options));
  }
}
