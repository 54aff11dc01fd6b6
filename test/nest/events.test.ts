import { Injectable } from '@nestjs/common';
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter';
import { Cron, Interval, ScheduleModule, SchedulerRegistry, Timeout } from '@nestjs/schedule';
import { Locked, LockService } from 'nest-redis-lock';
import { beforeEach, describe, expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

let seen: string[];
beforeEach(() => {
  seen = [];
});

describe('scheduled methods are locked, with the decorators in either order:', () => {
  const NEVER = '0 0 1 1 *';

  @Injectable()
  class Jobs {
    constructor(private readonly locks: LockService) {}

    @Cron(NEVER, { name: 'above' })
    @Locked('above', { waitMs: 0, onContended: 'skip' })
    async above(): Promise<void> {
      seen.push(this.locks.current().key);
    }

    @Locked('below', { waitMs: 0, onContended: 'skip' })
    @Cron(NEVER, { name: 'below' })
    async below(): Promise<void> {
      seen.push(this.locks.current().key);
    }

    @Timeout(1)
    @Locked('timeout')
    async timeout(): Promise<void> {
      seen.push(this.locks.current().key);
    }

    @Locked('interval')
    @Interval(1)
    async interval(): Promise<void> {
      if (!seen.includes('interval')) seen.push(this.locks.current().key);
    }
  }

  const imports = [ScheduleModule.forRoot()];

  it.each(['above', 'below'])('@Cron, with @Locked %s', async (name) => {
    const { app, locks, events } = await makeApp({
      imports: [ScheduleModule.forRoot({ intervals: false, timeouts: false })],
      providers: [Jobs],
    });
    const job = app.get(SchedulerRegistry).getCronJob(name);
    const held = await locks.acquire(name);
    await job.fireOnTick();
    await until(() => events.some(({ type }) => type === 'contended'), { what: 'the job was skipped' });
    expect(seen).toEqual([]);
    await held.release();
    await job.fireOnTick();
    await until(() => seen.length > 0, { what: 'the job has run' });
    expect(seen).toEqual([name]);
  });

  it('@Timeout and @Interval', async () => {
    await makeApp({ imports, providers: [Jobs] });
    await until(() => seen.length === 2, { what: 'both have run' });
    expect(seen.sort()).toEqual(['interval', 'timeout']);
  });

  it('in the module that comes before the scheduler, and in the one after it', async () => {
    const registered = [ScheduleModule.forRoot({ intervals: false, timeouts: false })];
    for (const modules of [
      { imports: registered, providers: [Jobs] },
      { imports: [{ module: class First {}, providers: [Jobs] }, ...registered] },
      { imports: [...registered, { module: class Last {}, providers: [Jobs] }] },
    ]) {
      const { app, acquired } = await makeApp(modules);
      await app.get(SchedulerRegistry).getCronJob('above').fireOnTick();
      await until(() => acquired.length > 0, { what: 'the job has taken its lock' });
      expect(acquired).toEqual(['above']);
    }
  });
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
