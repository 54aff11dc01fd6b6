import { Controller, Get, HttpCode, Injectable, Module, Param, Post } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Locked, LockService, RedisLockModule } from 'nest-redis-lock';
import { expect, it } from 'vitest';
import { RedisServer } from '../support/redis-server.js';
import { COUNTER } from '../support/stored.js';

@Injectable()
class Orders {
  running = 0;
  most = 0;
  constructor(readonly locks: LockService) {}

  @Locked('order:{0}')
  async pay(id: string): Promise<string> {
    this.running++;
    this.most = Math.max(this.most, this.running);
    this.locks.current().assertHeld();
    await new Promise((resolve) => setTimeout(resolve, 5));
    this.running--;
    return `paid ${id}`;
  }
}

@Controller('orders')
class OrdersController {
  @Post(':id/pay')
  @HttpCode(202)
  @Locked('order:{params.id}')
  async pay(@Param('id') id: string): Promise<string> {
    return id;
  }
  @Get()
  @Locked('x')
  async get() {
    return 'x';
  }
}

it('acquires, runs and releases on a real Redis', async () => {
  const redis = await RedisServer.start();
  @Module({
    imports: [RedisLockModule.forRoot({ redis: redis.url, commandTimeoutMs: 20_000 })],
    providers: [Orders],
    controllers: [OrdersController],
  })
  class App {}
  const app = (await Test.createTestingModule({ imports: [App] }).compile()).createNestApplication();
  await app.listen(0);
  const orders = app.get(Orders);
  expect(await Promise.all([1, 2, 3].map(() => orders.pay('7')))).toEqual(['paid 7', 'paid 7', 'paid 7']);
  expect(orders.most).toBe(1);
  const response = await fetch(`${await app.getUrl()}/orders/9/pay`, { method: 'POST' });
  expect([response.status, await response.text()]).toEqual([202, '9']);
  expect(await redis.keys('lock:*')).toEqual([COUNTER]);
  await app.close();
  await redis.stop();
});
