import { Injectable } from '@nestjs/common';
import { Locked, lockKey, LockService } from 'nest-redis-lock';
import { WarehouseClient } from '../warehouse/warehouse.client.js';
import type { Delivery } from './delivery.dto.js';

export interface Unloaded {
  sku: string;
  boxes: number;
  fencingToken: number;
  /** Process id of the instance that unloaded it. */
  by: number;
}

@Injectable()
export class DeliveriesService {
  constructor(
    private readonly warehouse: WarehouseClient,
    private readonly locks: LockService,
  ) {}

  /**
   * Adds the boxes to the stock. `ttlMs` does not limit how long that takes: it is how long the next call waits if this
   * instance dies in the middle.
   */
  @Locked((delivery: Delivery) => lockKey`product:${delivery.sku}`, { ttlMs: 2_000, waitMs: 15_000 })
  async unload(delivery: Delivery): Promise<Unloaded> {
    const lock = this.locks.current();
    const boxes = (await this.warehouse.boxesOf(delivery.sku, lock)) + delivery.boxes;
    await this.warehouse.setBoxes(delivery.sku, boxes, lock);
    return { sku: delivery.sku, boxes, fencingToken: lock.fencingToken, by: process.pid };
  }
}
