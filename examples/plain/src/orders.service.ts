import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { Locked, lockKey, LockService } from 'nest-redis-lock';

@Injectable()
export class OrdersService {
  constructor(private readonly locks: LockService) {}

  /** One call at a time for each order, in all instances of the application. */
  @Locked('order:{0}')
  async pay(id: string, by: string): Promise<void> {
    console.log(`order ${id}: ${by} begins to pay`);
    await pause(100); // slow work: a bank, a database
    console.log(`order ${id}: ${by} has paid`);
  }

  /** The same lock, for a part of a method. If the lock is taken, this call does not wait, but rejects at once. */
  async cancel(id: string): Promise<void> {
    await this.locks.withLock(lockKey`order:${id}`, { waitMs: 0 }, async (lock) => {
      lock.assertHeld(); // before a write
      console.log(`order ${id} is cancelled`);
    });
  }
}
