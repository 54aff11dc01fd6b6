import { Injectable } from '@nestjs/common';
import { Locked, LockService } from 'nest-redis-lock';
import { expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';

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
}

it('locked methods that take their locks in opposite orders are logged once, with their names [G377]', async () => {
  const { app, log } = await makeApp({ providers: [Shop] }, { memory: true, lockOrder: 'warn' });
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
