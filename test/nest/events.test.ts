import { Injectable } from '@nestjs/common';
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter';
import { Locked, LockService } from 'nest-redis-lock';
import { beforeEach, expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';

let seen: string[];
beforeEach(() => {
  seen = [];
});

it('listeners of events are locked, with the decorators in either order [G181]', async () => {
  @Injectable()
  class Listeners {
    constructor(private readonly locks: LockService) {}

    @OnEvent('paid')
    @Locked('above:{0.id}')
    async above(order: { id: number }): Promise<void> {
      seen.push(`${this.locks.current().key} ${order.id}`);
    }

    @Locked('below:{0.id}')
    @OnEvent('paid')
    async below(order: { id: number }): Promise<void> {
      seen.push(`${this.locks.current().key} ${order.id}`);
    }
  }
  const { app } = await makeApp({ imports: [EventEmitterModule.forRoot()], providers: [Listeners] });
  await app.get(EventEmitter2).emitAsync('paid', { id: 1 });
  expect(seen.sort()).toEqual(['above:1 1', 'below:1 1']);
});

it('the label of a locked method is its option, the text of its key, or the name of the method [G414]', async () => {
  @Injectable()
  class Orders {
    @Locked('order:{0}')
    async byText(_id: string): Promise<void> {}

    @Locked((id: string) => `order:${id}`)
    async byFunction(_id: string): Promise<void> {}

    @Locked(['order:{0}', 'stock:{0}'], { label: 'order and stock' })
    async byOption(_id: string): Promise<void> {}
  }
  const { app, locks } = await makeApp({ providers: [Orders] });
  const labels: string[] = [];
  locks.events$.subscribe((event) => event.type === 'acquired' && labels.push(event.label));
  const orders = app.get(Orders);
  await orders.byText('1');
  await orders.byFunction('2');
  await orders.byOption('3');
  expect(labels).toEqual(['order:{0}', 'Orders.byFunction', 'order and stock', 'order and stock']);
});
