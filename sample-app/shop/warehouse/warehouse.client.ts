import { BadGatewayException, Injectable, NotFoundException } from '@nestjs/common';
import { fencingHeaders, type Lock } from 'nest-redis-lock';
import { ShopConfig } from '../config/shop.config.js';

/** The parts of a lock that a request to the warehouse uses. */
export type UnderLock = Pick<Lock, 'key' | 'signal' | 'fencingToken'>;

/**
 * A client of the warehouse, over HTTP. The warehouse can only read and write, so a caller changes a number by reading it and then
 * writing it. Each request carries the fencing token, so that the warehouse can refuse it if it comes late. If the lock is lost, the
 * request is aborted.
 */
@Injectable()
export class WarehouseClient {
  constructor(private readonly config: ShopConfig) {}

  async skus(lock?: UnderLock): Promise<string[]> {
    return (await this.request('GET', '/products', lock)) as string[];
  }

  async boxesOf(sku: string, lock?: UnderLock): Promise<number> {
    const { boxes } = (await this.request('GET', `/products/${sku}`, lock)) as { boxes: number };
    return boxes;
  }

  async setBoxes(sku: string, boxes: number, lock?: UnderLock): Promise<void> {
    await this.request('PUT', `/products/${sku}`, lock, { boxes });
  }

  async fileReport(boxes: Record<string, number>, lock: UnderLock): Promise<void> {
    await this.request('POST', '/reports', lock, { boxes, by: process.pid });
  }

  private async request(method: string, path: string, lock?: UnderLock, body?: object): Promise<unknown> {
    const response = await fetch(this.config.warehouseUrl + path, {
      method,
      signal: lock?.signal,
      headers: { ...(lock && fencingHeaders(lock)), ...(body && { 'content-type': 'application/json' }) },
      body: body && JSON.stringify(body),
    });
    if (response.ok) return response.json();
    if (response.status === 404) throw new NotFoundException('The warehouse has no such product.');
    throw new BadGatewayException(`The warehouse answered ${response.status}: ${await response.text()}`);
  }
}
