import { GoneException, Injectable } from '@nestjs/common';
import type { Lock } from 'nest-redis-lock';
import { WarehouseClient } from '../warehouse/warehouse.client.js';

export interface Stock {
  sku: string;
  boxes: number;
}

export interface Receipt {
  sku: string;
  /** Process id of the instance that sold the box. */
  soldBy: number;
}

@Injectable()
export class ProductsService {
  constructor(private readonly warehouse: WarehouseClient) {}

  async stockOf(sku: string): Promise<Stock> {
    return { sku, boxes: await this.warehouse.boxesOf(sku) };
  }

  /**
   * Sells one box.
   * @throws GoneException if none is left
   */
  async sell(sku: string, lock?: Lock): Promise<Receipt> {
    const boxes = await this.warehouse.boxesOf(sku, lock);
    if (boxes === 0) throw new GoneException(`${sku} is sold out.`);
    await this.warehouse.setBoxes(sku, boxes - 1, lock);
    return { sku, soldBy: process.pid };
  }
}
