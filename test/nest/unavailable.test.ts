import { Injectable } from '@nestjs/common';
import { Limited, Locked, LockService, LockUnavailableError, RedisLockModule } from 'nest-redis-lock';
import { firstValueFrom, Observable } from 'rxjs';
import { beforeEach, describe, expect, it } from 'vitest';
import { makeApp, type TestApp } from '../support/nest-app.js';
import type { RedisServer } from '../support/redis-server.js';
import { freeOn, proxyTo, redisServer } from '../support/stage.js';
import type { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

/** The log: a method, or what is called instead. */
let ran: string[];
beforeEach(() => {
  ran = [];
});

function answer(error: LockUnavailableError, ...args: unknown[]): string {
  ran.push('answer');
  return `${error.code} ${args.join(' ')}`;
}

@Injectable()
class Orders {
  constructor(readonly locks: LockService) {}

  @Locked('order:{0}')
  async throwing(_id: string): Promise<string> {
    return this.work();
  }

  @Locked('order:{0}', { onUnavailable: 'skip' })
  async skipping(_id: string): Promise<string | undefined> {
    return this.work();
  }

  @Locked('order:{0}', { onUnavailable: (error, id, amount) => answer(error, id, amount) })
  async answering(_id: string, _amount: number): Promise<string> {
    return this.work();
  }

  @Locked('order:{0}', { waitMs: 0, onContended: () => 'busy', onUnavailable: async () => 'down' })
  async both(_id: string): Promise<string> {
    return this.work();
  }

  @Locked('order:{0}', {
    onUnavailable: (error) => {
      throw new RangeError('of onUnavailable', { cause: error });
    },
  })
  async failing(_id: string): Promise<string> {
    return this.work();
  }

  @Locked(['order:{0}', 'orders'], { policy: 'kept', onUnavailable: () => 'down' })
  async several(_id: string): Promise<string> {
    return this.work();
  }

  @Limited('order:{0}', { policy: 'few', onUnavailable: () => 'down' })
  async limited(_id: string): Promise<string> {
    return this.work();
  }

  /** Its own lock is in memory, the lock of the method that it calls is not. */
  @Locked('outer', { onUnavailable: answer, registration: 'memory' })
  async outer(id: string): Promise<string> {
    return this.throwing(id);
  }

  @Locked('outer', { onUnavailable: answer, registration: 'memory' })
  outerStream(id: string): Observable<string> {
    return new Observable<string>((subscriber) => {
      this.throwing(id).catch((error: unknown) => subscriber.error(error));
    });
  }

  private work(): string {
    ran.push('work');
    return 'worked';
  }
}

interface Test extends TestApp {
  orders: Orders;
  redis: RedisServer;
  proxy: TcpProxy;
}

async function start(): Promise<Test> {
  const redis = await redisServer();
  const proxy = await proxyTo(redis);
  const policies = { kept: { holdMs: 5_000 }, few: { limit: 2, ttlMs: 60_000 } };
  const test = await makeApp(
    { providers: [Orders], imports: [RedisLockModule.forRoot({ memory: true, name: 'memory' })] },
    { redis: proxy.url, commandTimeoutMs: 300, ttlMs: 60_000, policies, shutdownTimeoutMs: 0 },
  );
  await (await test.locks.acquire('order:before')).release(); // the server knows the scripts
  return { ...test, orders: test.app.get(Orders), redis, proxy };
}

const OUTAGES: [what: string, begin: (test: Test) => unknown][] = [
  ['is killed', ({ redis }) => redis.kill()],
  ['hangs', ({ redis }) => redis.pause()],
  ['grants the lock, but its answer is lost', ({ proxy }) => proxy.dropReplies()],
];

describe.each(OUTAGES)('while the server %s', (_, begin) => {
  it('a method throws by default; with onUnavailable it is skipped, or a function answers without a lock [G929]', async () => {
    const test = await start();
    const { orders } = test;
    await begin(test);
    await expect(orders.throwing('7')).rejects.toBeInstanceOf(LockUnavailableError);
    expect(await orders.skipping('7')).toBeUndefined();
    expect(ran).toEqual([]);
    expect(await orders.answering('7', 5)).toBe('LOCK_UNAVAILABLE 7 5');
    expect(ran).toEqual(['answer']);
    expect(await orders.both('7')).toBe('down');
    expect(await orders.several('7')).toBe('down');
    expect(await orders.limited('7')).toBe('down');
    await expect(orders.failing('7')).rejects.toThrow(new RangeError('of onUnavailable'));
    expect(ran).toEqual(['answer']);
    const keys = test.events.flatMap((event) => (event.type === 'unavailable' ? event.key : []));
    expect(keys.filter((key) => key !== 'orders')).toEqual(Array(7).fill('order:7')); // as without the option
  });

  it('an error of the method itself is passed on unchanged, even one of a nested lock [G930]', async () => {
    const test = await start();
    await begin(test);
    const expected = { code: 'LOCK_UNAVAILABLE', method: 'Orders.throwing' };
    await expect(test.orders.outer('7')).rejects.toMatchObject(expected);
    await expect(firstValueFrom(test.orders.outerStream('7'))).rejects.toMatchObject(expected);
    expect(ran).toEqual([]);
  });
});

it('a lock that was granted although its answer was lost is given back once onUnavailable has answered [G931]', async () => {
  const { orders, redis, proxy } = await start();
  const granted = proxy.cutAfterRequest(/evalsha/i);
  proxy.refuse(); // otherwise the call would be repeated on a new connection
  expect(await orders.answering('7', 5)).toBe('LOCK_UNAVAILABLE 7 5');
  await granted;
  expect(await redis.keys('lock:{order:7}')).toEqual(['lock:{order:7}']);
  await proxy.accept();
  await freeOn([redis], 'order:7');
  await until(async () => (await orders.throwing('7').catch(() => '')) === 'worked', { what: 'the lock can be had' });
});
