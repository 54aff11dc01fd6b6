import { Controller, Injectable, Param, Post } from '@nestjs/common';
import { lockKey, Locked, LockService } from 'nest-redis-lock';
import { expect, it } from 'vitest';
import { makeApp, post, startApp } from '../support/nest-app.js';

@Injectable()
class Shop {
  constructor(readonly locks: LockService) {}

  @Locked('order:{0}')
  async pay(id: string): Promise<void> {
    await this.reserve(id);
  }

  @Locked('stock:{0}')
  async reserve(_id: string): Promise<void> {}

  @Locked('stock:{0}')
  async recount(id: string): Promise<void> {
    await this.correct(id);
  }

  @Locked((id: string) => `order:${id}`)
  async correct(_id: string): Promise<void> {}

  @Locked('user:{0}')
  async merge(_id: string, run: () => Promise<void>): Promise<void> {
    await run();
  }
}

@Controller()
class Orders {
  constructor(private readonly shop: Shop) {}

  @Post('orders/:id/recount')
  @Locked('stock:{params.id}')
  async recount(@Param('id') id: string): Promise<void> {
    await this.shop.pay(id);
  }
}

const ORDERED = { memory: true, lockOrder: 'warn' } as const;

it('locked methods that take their locks in opposite orders are logged once, with their names [G377]', async () => {
  const { app, log } = await makeApp({ providers: [Shop] }, ORDERED);
  const shop = app.get(Shop);
  await shop.pay('1');
  await shop.recount('2');
  await shop.recount('3');
  expect(log.lines).toEqual([
    'warn Locks are taken in different orders: Shop.correct takes "order:2" under "stock:2" (Shop.recount); ' +
      'Shop.reserve takes "stock:1" under "order:1" (Shop.pay). Calls that do so at the same time may wait for each other ' +
      'until waitMs is over. Always take them in one order, or at once with acquireAll; see docs/waiting.md.',
  ]);
});

it('the lock of a handler is of the same kind as that of a method and of a call that lock the same keys', async () => {
  const { app, url, log } = await startApp({ providers: [Shop], controllers: [Orders] }, ORDERED);
  const { locks } = app.get(Shop);
  await locks.withLock(lockKey`order:${1}`, () => locks.withLock(lockKey`stock:${1}`, async () => {}));
  expect((await post(`${url}/orders/7/recount`, {})).status).toBe(201);
  expect(log.lines).toEqual([
    expect.stringContaining('different orders: Shop.pay takes "order:7" under "stock:7" (Orders.recount); '),
  ]);
});

it('keys of one template are of one kind, whatever stands in the placeholders', async () => {
  const { app, log } = await makeApp({ providers: [Shop] }, ORDERED);
  const shop = app.get(Shop);
  await shop.merge('ada', () => shop.merge('grace', async () => {}));
  expect(log.lines).toEqual([]);
  await shop.merge('grace', () => shop.merge('ada', async () => {}));
  expect(log.lines).toEqual([
    expect.stringContaining('Shop.merge takes "user:ada" under "user:grace" (Shop.merge). Another call'),
  ]);
});

it('a method with @Locked for several keys is named in the report', async () => {
  @Injectable()
  class Transfers {
    constructor(readonly locks: LockService) {}

    @Locked((from: string, to: string) => [lockKey`account:${from}`, lockKey`limit:${to}`])
    async transfer(_from: string, _to: string): Promise<void> {}
  }
  const { app, log } = await makeApp({ providers: [Transfers] }, ORDERED);
  const transfers = app.get(Transfers);
  await transfers.transfer('1', '2');
  await transfers.locks.withLock('limit:1', () => transfers.locks.withLock('account:1', async () => {}));
  expect(log.lines).toEqual([
    expect.stringContaining(
      '; Transfers.transfer takes "account:1" before "limit:2" (a call for several keys, which takes them sorted). ',
    ),
  ]);
});

it("with lockOrder 'throw' a locked method does not run, and its error names it", async () => {
  const { app } = await makeApp({ providers: [Shop] }, { memory: true, lockOrder: 'throw' });
  const shop = app.get(Shop);
  await shop.pay('1');
  await expect(shop.recount('1')).rejects.toMatchObject({
    code: 'LOCK_OPTIONS',
    message: expect.stringContaining('Shop.correct takes "order:1"'),
  });
});
