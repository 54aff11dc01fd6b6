import { Inject, Injectable, Module, type OnApplicationShutdown } from '@nestjs/common';
import { Redis } from 'ioredis';
import { Locked, RedisLockModule } from 'nest-redis-lock';

export const REDIS_URL = process.env.REDIS_URL ?? 'redis://localhost:6379';

/** How many boxes are left of each product. Both instances share it, as they would share a table of your database. */
@Injectable()
export class Stock implements OnApplicationShutdown {
  constructor(@Inject(Redis) private readonly redis: Redis) {}

  async count(sku: string): Promise<number> {
    return Number(await this.redis.get(`stock:${sku}`));
  }

  async setCount(sku: string, count: number): Promise<void> {
    await this.redis.set(`stock:${sku}`, count, 'EX', 60);
  }

  async onApplicationShutdown(): Promise<void> {
    await this.redis.quit();
  }
}

@Injectable()
export class Shop {
  constructor(private readonly stock: Stock) {}

  /** The bug: between the two lines another call may read the same number. @returns whether it sold a box */
  async sellWithoutLock(sku: string): Promise<boolean> {
    const left = await this.stock.count(sku);
    if (left > 0) await this.stock.setCount(sku, left - 1);
    return left > 0;
  }

  /** The same, but only one call at a time for each product. */
  @Locked('product:{0}')
  sell(sku: string): Promise<boolean> {
    return this.sellWithoutLock(sku);
  }
}

@Module({
  imports: [RedisLockModule.forRoot({ redis: REDIS_URL })],
  providers: [Shop, Stock, { provide: Redis, useFactory: () => new Redis(REDIS_URL) }],
})
export class ShopModule {}
