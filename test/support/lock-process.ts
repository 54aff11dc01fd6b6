import { onTestFinished } from 'vitest';
import type { AcquireOptions, LockParcel, PermitOptions, RedisLockModuleOptions } from '../../lib/index.js';
import { DrivenProcess } from './driven-process.js';

/** One turn under a lock; the times, in nanoseconds, are of one clock for all processes. */
export interface Turn {
  fencingToken: number;
  from: string;
  to: string;
}

/** The servers of the module, or the port of a node of a Cluster; and how far the clock of the process is ahead. */
type Settings = (RedisLockModuleOptions | { clusterPort: number }) & { clockAheadMs?: number };

/** A separate process that holds locks, and can be stopped and killed. It ends with the test, or with the file. */
export class LockProcess extends DrivenProcess {
  static start(
    settings: Settings,
    whenOver: (end: () => Promise<void>) => void = onTestFinished,
  ): Promise<LockProcess> {
    const running = new LockProcess(new URL('lock-process.worker.mjs', import.meta.url), settings);
    whenOver(() => running.kill());
    return running.ready();
  }

  acquire(key: string, options: AcquireOptions = {}): Promise<{ owner: string; fencingToken: number }> {
    return this.ask('acquire', key, options);
  }

  acquirePermits(key: string, options: PermitOptions): Promise<{ owner: string }> {
    return this.ask('acquirePermits', key, options);
  }

  /**
   * Makes this many lock services of the process wait for a lock: Redis cannot distinguish them from as many processes.
   */
  waitInMany(key: string, services: number, request: AcquireOptions = {}): Promise<void> {
    return this.ask('waitInMany', key, services, request);
  }

  release(key: string): Promise<boolean> {
    return this.ask('release', key);
  }

  isHeld(key: string): Promise<boolean> {
    return this.ask('isHeld', key);
  }

  detach(key: string, ttlMs: number): Promise<LockParcel> {
    return this.ask('detach', key, ttlMs);
  }

  adopt(parcel: LockParcel): Promise<{ owner: string; fencingToken: number }> {
    return this.ask('adopt', parcel);
  }

  extendParcel(parcel: LockParcel, ttlMs: number): Promise<void> {
    return this.ask('extendParcel', parcel, ttlMs);
  }

  releaseParcel(parcel: LockParcel): Promise<boolean> {
    return this.ask('releaseParcel', parcel);
  }

  /** Answers when all earlier requests have begun. */
  begun(): Promise<void> {
    return this.ask('begun');
  }

  /** Makes this many waiters take the lock this many times each. */
  turns(key: string, duty: { waiters: number; turns: number; request?: AcquireOptions }): Promise<Turn[]> {
    return this.ask('turns', key, duty);
  }

  /** Makes the process check the lock constantly, until it sees that it did not run for `pausedMs`. */
  lookForPause(key: string, pausedMs: number): Promise<void> {
    return this.ask('lookForPause', key, pausedMs);
  }

  /** The state of the lock in the first line that ran after that pause. */
  firstLook(): Promise<{ isHeld: boolean; aborted: boolean; reason?: string }> {
    return this.ask('firstLook');
  }
}
