import { Inject, Logger, Module, Optional, type DynamicModule } from '@nestjs/common';
import { LockOptionsError } from '../api/errors.js';
import { LockWatches } from './lock-watch.js';
import { pageController } from './page.controller.js';
import { checkPageOptions, type LocksPageOptions } from './page-options.js';

const OPTIONS = Symbol('LocksPageOptions');

/** Every page imports this module, and an application has one instance, so that its pages share their lists. */
@Module({ providers: [LockWatches], exports: [LockWatches] })
class LockWatchModule {}

/**
 * A page that shows which locks are held, by whom, and who waits: `LocksPageModule.register({ path: 'admin/locks', guards:
 * [AdminGuard] })`. Read-only, unless `allowRelease` is set.
 */
@Module({})
export class LocksPageModule {
  /** @internal Nest makes one for each page. @throws LockOptionsError */
  constructor(@Optional() @Inject(OPTIONS) private readonly options?: LocksPageOptions) {
    if (!options) throw new LockOptionsError('Import LocksPageModule.register({ path, guards }), not LocksPageModule.');
  }

  /** @throws LockOptionsError */
  static register(options: LocksPageOptions): DynamicModule {
    checkPageOptions(options);
    return {
      module: LocksPageModule,
      imports: [LockWatchModule, ...(options.imports ?? [])],
      controllers: [pageController(options)],
      providers: [{ provide: OPTIONS, useValue: options }],
    };
  }

  /** @internal Nest calls it when the application starts. */
  onModuleInit(): void {
    const { path, guards, allowRelease } = this.options!;
    if (guards !== 'none') return;
    new Logger('LocksPage').warn(
      `The page ${JSON.stringify(path)} has no guards of its own: unless something else protects it, anyone who reaches it sees ` +
        `which locks are held${allowRelease ? ', and can release them' : ''}.`,
    );
  }
}
