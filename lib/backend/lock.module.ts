import { Module, type DynamicModule } from '@nestjs/common';
import { BACKEND, type LockModuleOptions } from '../compose/backend-lock-options.js';
import {
  anAsyncForm,
  anObject,
  lockModuleDefinition,
  type LockModuleKind,
} from '../nest/module/lock.module-definition.js';

const OPTIONS = Symbol('LockModuleOptions');
const KIND: LockModuleKind<LockModuleOptions> = { name: 'LockModule', store: BACKEND };

const { ConfigurableModuleClass, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } = lockModuleDefinition(
  KIND,
  OPTIONS,
  'createLockOptions',
);

/** Provides `LockService` on a store of your own. Everything else is as with the other lock modules. */
@Module({})
export class LockModule extends ConfigurableModuleClass {
  /**
   * Registers the module: `forRoot({ backend: () => new MyStore() })`. `isGlobal` (default true) and `name` (for a second registration)
   * go in the same object.
   * @throws LockOptionsError here or when the application starts
   */
  static override forRoot(options: typeof OPTIONS_TYPE): DynamicModule {
    return super.forRoot(anObject('LockModule.forRoot', options));
  }

  /**
   * Registers the module with options that are made later: `forRootAsync({ imports, inject, useFactory | useClass | useExisting })`.
   * `isGlobal` and `name` go in the same object.
   * @throws LockOptionsError here or when the application starts
   */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    return super.forRootAsync(anAsyncForm('LockModule.forRootAsync', options));
  }
}
