import { Injectable } from '@nestjs/common';
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter';
import { Locked, LockOptionsError, LockService } from 'nest-redis-lock';
import { lastValueFrom, Observable, of, toArray } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';

@Injectable()
class Orders {
  ran = 0;

  @Locked('order', { waitMs: 0 })
  async throwing(): Promise<void> {
    this.ran++;
  }

  @Locked('outer', { onContended: 'skip' })
  async outer(): Promise<void> {
    return this.throwing();
  }
}

it('a locked method of an object made with new does not run, and says why [G187]', async () => {
  const orders = new Orders();
  await expect(orders.throwing()).rejects.toThrow(
    'Orders has no LockService: the instance was not created by Nest, or the method was called without its object.',
  );
  await expect(orders.throwing()).rejects.toBeInstanceOf(LockOptionsError);
  expect(orders.ran).toBe(0);
});

it('a refused locked method names the locks of the methods that called it [G372]', async () => {
  const { app, locks } = await makeApp({ providers: [Orders] });
  const orders = app.get(Orders);
  await using _held = await locks.acquire('order');
  await expect(orders.outer()).rejects.toMatchObject({
    method: 'Orders.throwing',
    holding: ['outer'],
    message: expect.stringMatching(/^Orders\.throwing: Lock "order" .* This call held "outer" meanwhile: /),
  });
  await expect(orders.throwing()).rejects.toMatchObject({ holding: [] });
});

describe('a method that is not async', () => {
  /** As in JavaScript, or with `any`: elsewhere these methods do not compile. */
  const untyped = (value: unknown) => value as Promise<unknown>;

  @Injectable()
  class Sync {
    readonly ran: unknown[] = [];
    constructor(readonly locks: LockService) {}

    @Locked('{0}')
    value(_key: string): Promise<unknown> {
      return untyped(this.ran.push(this.locks.current().key));
    }

    @Locked('x')
    nothing(): Promise<unknown> {
      return untyped(undefined);
    }

    @Locked('x')
    streamOfPromise(): Observable<unknown> {
      return Promise.resolve(of(1, 2)) as unknown as Observable<unknown>;
    }
  }

  const warning = (method: string) =>
    `warn Sync.${method} is @Locked and returned a plain value. Its callers get a Promise: make the method async.`;

  it('a locked method that is not async runs under its lock, and its callers get a Promise of its value, with one warning [G1032]', async () => {
    const { app, locks, log } = await makeApp({ providers: [Sync] });
    const sync = app.get(Sync);
    const first = sync.value('a');
    expect(first).toBeInstanceOf(Promise);
    expect([await first, await sync.value('b')]).toEqual([1, 2]);
    expect(sync.ran).toEqual(['a', 'b']);
    expect(log.lines).toEqual([warning('value')]);
    expect(await sync.nothing()).toBe(undefined);
    expect(log.lines).toEqual([warning('value'), warning('nothing')]);
    expect(await locks.isLocked('a')).toBe(false);
  });

  it('emits the values of a promised stream if it was declared', async () => {
    const { app, locks } = await makeApp({ providers: [Sync] });
    expect(await lastValueFrom(app.get(Sync).streamOfPromise().pipe(toArray()))).toEqual([1, 2]);
    expect(await locks.isLocked('x')).toBe(false);
  });
});

describe('a method that returns what would run without the lock', () => {
  it.each([
    ['a generator', function* () {}, 'is @Locked and returned a generator, whose code would run without the lock'],
    [
      'an async generator',
      async function* () {},
      'is @Locked and returned a generator, whose code would run without the',
    ],
    ['an Observable', () => of(1), 'returned an Observable, but is not declared to'],
    ['a Promise of an Observable', async () => of(1), 'returned a Promise of an Observable, but is not declared to'],
  ] as [string, () => unknown, string][])('is refused at the call, if it returns %s', async (_what, body, problem) => {
    class Loose {
      @Locked('x')
      run(): Promise<unknown> {
        return body() as Promise<unknown>;
      }
    }
    const { app, locks } = await makeApp({ providers: [Loose] });
    await expect(app.get(Loose).run()).rejects.toThrow(problem);
    await expect(app.get(Loose).run()).rejects.toBeInstanceOf(LockOptionsError);
    expect(await locks.isLocked('x')).toBe(false);
  });

  it('an Observable that was not declared is not subscribed to, and a thenable is started once', async () => {
    const began: string[] = [];
    class Lazy {
      @Locked('x')
      stream(): Promise<unknown> {
        return new Observable(() => void began.push('stream')) as unknown as Promise<unknown>;
      }

      @Locked('x')
      query(): Promise<string> {
        const then = (resolve: (rows: string) => void) => {
          began.push('query');
          resolve('rows');
        };
        return { then } as Promise<string>;
      }
    }
    const lazy = (await makeApp({ providers: [Lazy] })).app.get(Lazy);
    await expect(lazy.stream()).rejects.toThrow(
      'Lazy.stream returned an Observable, but is not declared to return an Observable, so @Locked did not subscribe to it',
    );
    expect([await lazy.query(), began]).toEqual(['rows', ['query']]);
  });
});

it('listeners of events are locked, with the decorators in either order [G181]', async () => {
  @Injectable()
  class Listeners {
    readonly seen: string[] = [];
    constructor(private readonly locks: LockService) {}

    @OnEvent('paid')
    @Locked('above:{0.id}')
    async above(order: { id: number }): Promise<void> {
      this.seen.push(`${this.locks.current().key} ${order.id}`);
    }

    @Locked('below:{0.id}')
    @OnEvent('paid')
    async below(order: { id: number }): Promise<void> {
      this.seen.push(`${this.locks.current().key} ${order.id}`);
    }
  }
  const { app } = await makeApp({ imports: [EventEmitterModule.forRoot()], providers: [Listeners] });
  await app.get(EventEmitter2).emitAsync('paid', { id: 1 });
  expect(app.get(Listeners).seen.sort()).toEqual(['above:1 1', 'below:1 1']);
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

it('locked methods that take their locks in opposite orders are logged once, with their names [G377]', async () => {
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
  const { app, log } = await makeApp({ providers: [Shop] }, { memory: true, lockOrder: 'warn' });
  const shop = app.get(Shop);
  await shop.pay('1');
  await shop.recount('2');
  await shop.recount('3');
  expect(log.lines).toEqual([
    'warn Locks are taken in different orders: Shop.correct takes "order:2" under "stock:2" (Shop.recount); ' +
      'Shop.reserve takes "stock:1" under "order:1" (Shop.pay). Calls that do so at the same time may wait for each other ' +
      'until waitMs has passed. Always take them in the same order, or at once with acquireAll; see docs/tuning.md.',
  ]);
});
