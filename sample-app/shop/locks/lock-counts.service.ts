import { Injectable } from '@nestjs/common';
import { LockService, type LockEvent } from 'nest-redis-lock';

export type LockCounts = Partial<Record<LockEvent['type'], number>>;

/** Counts what happens to the locks of this instance: by the first part of their keys, of which there are few. */
@Injectable()
export class LockCountsService {
  readonly bySubject: Record<string, LockCounts> = {};

  constructor(locks: LockService) {
    // Completes by itself when the application closes.
    locks.events$.subscribe(({ key, type }) => {
      const [subject = key] = key.split(':');
      const counts = (this.bySubject[subject] ??= {});
      counts[type] = (counts[type] ?? 0) + 1;
    });
  }
}
