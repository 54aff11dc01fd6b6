import { Injectable } from '@nestjs/common';
import { Cron } from '@nestjs/schedule';
import { Locked, lockKey, LockService } from 'nest-redis-lock';
import { WarehouseClient } from '../warehouse/warehouse.client.js';

export const NIGHTLY_JOB = 'stocktaking';

@Injectable()
export class StocktakingService {
  constructor(
    private readonly warehouse: WarehouseClient,
    private readonly locks: LockService,
  ) {}

  /**
   * Every instance has this cron job. The first instance that takes the lock does the work; the others skip it. The job must take
   * longer than the clocks of the instances differ: otherwise an instance with a late clock finds the lock free again.
   */
  @Cron('0 3 * * *', { name: NIGHTLY_JOB })
  @Locked('nightly', { waitMs: 0, onContended: 'skip' })
  async takeStock(): Promise<void> {
    const night = this.locks.current();
    const boxes: Record<string, number> = {};
    for (const sku of await this.warehouse.skus(night)) {
      // The lock keeps others from selling or unloading the product while it is counted.
      boxes[sku] = await this.locks.withLock(lockKey`product:${sku}`, (lock) => this.warehouse.boxesOf(sku, lock));
    }
    await this.warehouse.fileReport(boxes, night);
  }
}
