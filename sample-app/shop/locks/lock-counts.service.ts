import { Injectable } from '@nestjs/common';
import { LockService, type LockEvent } from 'nest-redis-lock';

export type LockCounts = Partial<Record<LockEvent['type'], number>>;

/** Counts the lock events of this instance. It groups them by the first part of the key, which has only a few values. */
@Injectable()
export class LockCountsService {
  readonly bySubject: Record<string, LockCounts> = {};

  constructor(locks: LockService) {
    // The subscription ends by itself when the application closes.
    locks.events$.subscribe(({ key, type }) => {
      const [subject = key] = key.split(':');
      const counts = (this.bySubject[subject] ??= {});
      counts[type] = (counts[type] ?? 0) + 1;
    });
  }
}
