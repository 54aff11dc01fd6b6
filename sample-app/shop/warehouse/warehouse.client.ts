import { BadGatewayException, Injectable, NotFoundException } from '@nestjs/common';
import { fencingHeaders, type Lock } from 'nest-redis-lock';
import { ShopConfig } from '../config/shop.config.js';

/** What a request to the warehouse takes over from the lock it is sent under. */
export type UnderLock = Pick<Lock, 'key' | 'signal' | 'fencingToken'>;

/**
 * The warehouse, over HTTP. It can only read and write, so whoever changes a number reads it first and writes it after.
 * A request is given up when the lock is lost, and carries the fencing token, by which the warehouse refuses it when it
 * comes late.
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
