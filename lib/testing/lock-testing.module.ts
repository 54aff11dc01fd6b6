import { Module, type DynamicModule } from '@nestjs/common';
import { checkOption } from '../core/options/option-rows.js';
import { DEFAULT_REGISTRATION } from '../core/options/service-options.js';
import { Shutdown } from '../core/service/shutdown.js';
import { getLockServiceToken } from '../nest/injection/tokens.js';
import { lockedInterceptorOf } from '../nest/locked/locked.interceptor.js';
import { anObject, SHARED_MODULES } from '../nest/module/lock.module-definition.js';
import { LockBench, type LockBenchOptions } from './lock-bench.js';

/** The injection token of the `LockBench` of a registration. */
export function getLockBenchToken(registration: string = DEFAULT_REGISTRATION): typeof LockBench | string {
  return registration === DEFAULT_REGISTRATION ? LockBench : `LockBench(${registration})`;
}

/** Replaces `RedisLockModule` in a test. It has the same providers, with the locks of a `LockBench`, and also provides that bench. */
@Module({})
export class LockTestingModule {
  /** Call it once for each registration of the application under test. Its providers are global. */
  static forRoot(options: LockBenchOptions = {}): DynamicModule {
    anObject('LockTestingModule.forRoot', options);
    const { name } = options;
    if (name !== undefined) checkOption('forRoot', 'name', name);
    const bench = getLockBenchToken(name);
    const locks = getLockServiceToken(name);
    const interceptor = lockedInterceptorOf(name);
    return {
      module: LockTestingModule,
      global: true,
      imports: SHARED_MODULES,
      providers: [
        { provide: bench, inject: [Shutdown], useFactory: (shutdown: Shutdown) => new LockBench(options, shutdown) },
        { provide: locks, inject: [bench], useFactory: (made: LockBench) => made.locks },
        interceptor,
      ],
      exports: [bench, locks, interceptor],
    };
  }
}
