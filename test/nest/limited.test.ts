import { Controller, Get, Injectable, Param } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import {
  Limited,
  LockContendedError,
  LockExceptionFilter,
  LockOptionsError,
  LockService,
  LockUnavailableError,
  RedisLockModule,
} from 'nest-redis-lock';
import { LockBench, LockTestingModule } from 'nest-redis-lock/testing';
import { Subject, Observable } from 'rxjs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { describeDecorators } from '../support/keeps-decorators.js';
import { makeApp, openApp, sharedApp, startModules, type TestApp } from '../support/nest-app.js';
import { redisServer } from '../support/stage.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { until } from '../support/until.js';

describeDecorators('Limited', Limited('key:{body.id}', { limit: 2 }));

/** Counts what runs at once, in any application. */
class Crowd {
  running = 0;
  most = 0;

  async work(gate: Gate): Promise<void> {
    this.most = Math.max(this.most, ++this.running);
    await gate.opened;
    this.running--;
  }
}

@Injectable()
class Partners {
  readonly ticks = new Subject<number>();
  constructor(readonly locks: LockService) {}

  @Limited('partner:{0}', { limit: 2 })
  async call(_partner: string, crowd: Crowd, gate: Gate): Promise<void> {
    await crowd.work(gate);
  }

  @Limited((partner: string) => `partner:${partner}`, { limit: 2, permits: 2 })
  async large(_partner: string): Promise<string> {
    return this.locks.current().key;
  }

  @Limited('partner:{0}', { limit: 2, waitMs: 0 })
  async impatient(_partner: string): Promise<string> {
    return 'ran';
  }

  @Limited('partner:{0}', { limit: 2, waitMs: 0, onContended: 'skip' })
  async skipping(_partner: string): Promise<string | undefined> {
    return 'ran';
  }

  @Limited('partner:{0}', { limit: 2 })
  watch(_partner: string): Observable<number> {
    return this.ticks;
  }
}

const open = async () => {
  const test = await makeApp({ providers: [Partners] }, { memory: true, waitMs: 60_000 });
  return { ...test, partners: test.app.get(Partners) };
};

/** Takes all permits of a key until the gate is opened. */
async function full(partners: Partners, partner = 'a'): Promise<{ gate: Gate; crowd: Crowd; calls: Promise<unknown> }> {
  const [gate, crowd] = [new Gate(), new Crowd()];
  const calls = Promise.all([1, 2].map(() => partners.call(partner, crowd, gate)));
  await until(() => crowd.running === 2, { what: 'all permits are held' });
  return { gate, crowd, calls };
}

const waiting = (locks: LockService, key: string, count: number) =>
  until(async () => ((await locks.inspect(key))?.waiters ?? 0) === count, { what: `${count} calls wait` });

it('a method with @Limited runs at most `limit` times at once for each key, however many call it [G880]', async () => {
  const { partners, locks } = await open();
  const { gate, crowd, calls } = await full(partners);
  const more = Array.from({ length: 6 }, () => partners.call('a', crowd, gate));
  const other = new Crowd();
  const elsewhere = partners.call('b', other, gate);
  await until(() => other.running === 1, { what: 'another key is free' });
  await waiting(locks, 'partner:a', 6);
  expect(crowd.running).toBe(2);
  gate.open();
  await Promise.all([calls, elsewhere, ...more]);
  expect(crowd.most).toBe(2);
  expect(locks.size).toBe(0);
});

it('a method with @Limited throws by default, and the error names it and what to do [G881]', async () => {
  const { partners } = await open();
  const { gate, calls } = await full(partners);
  const error = await partners.impatient('a').catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockContendedError);
  expect(error).toMatchObject({
    code: 'LOCK_CONTENDED',
    status: 409,
    method: 'Partners.impatient',
    key: 'partner:a',
  });
  expect((error as Error).message).toMatch(
    /^Partners\.impatient: 1 permit of "partner:a" is not free: the lock is held by .* Raise waitMs, or shorten the work under the permits\. To do something else instead, use tryAcquirePermits, or onContended of @Limited\.$/,
  );
  expect((error as Error).message).not.toContain('@Locked');
  gate.open();
  await calls;
});

it('a stream holds its permits from the subscription until it ends [G882]', async () => {
  const { partners, locks } = await open();
  const streams = [1, 2].map(() => partners.watch('a'));
  expect(await locks.isLocked('partner:a')).toBe(false);
  const subscriptions = streams.map((stream) => stream.subscribe());
  const heldBy = (count: number) =>
    until(() => locks.stats().reduce((sum, { held }) => sum + held, 0) === count, { what: `${count} streams run` });
  await heldBy(2);
  await expect(partners.impatient('a')).rejects.toThrow(LockContendedError);
  subscriptions[0]!.unsubscribe();
  await heldBy(1);
  await until(() => partners.skipping('a'), { what: 'the permit of the first is free' });
  partners.ticks.complete();
  await heldBy(0);
});

describe('a handler with @Limited', () => {
  @Controller()
  class Handlers {
    @Get('static')
    @Limited('a', { limit: 1, waitMs: 0 })
    async static(): Promise<string> {
      return 'ran';
    }

    @Get('params/:id')
    @Limited('{params.id}', { limit: 1, waitMs: 0 })
    async params(@Param('id') _id: string): Promise<string> {
      return 'ran';
    }

    @Get('arguments/:id')
    @Limited('{0}', { limit: 1, waitMs: 0 })
    async arguments(@Param('id') _id: string): Promise<string> {
      return 'ran';
    }
  }

  const test = sharedApp({
    controllers: [Handlers],
    providers: [{ provide: APP_FILTER, useClass: LockExceptionFilter }],
  });

  it.each(['static', 'params/a', 'arguments/a'])(
    'answers 409 with Retry-After through the filter while the permits of its key are held: %s [G883]',
    async (path) => {
      const { url, locks } = test;
      await using permit = await locks.acquirePermits('a', { limit: 1, ttlMs: 30_000 });
      const busy = await fetch(`${url}/${path}`);
      expect([busy.status, await busy.json()]).toEqual([409, expect.objectContaining({ code: 'LOCK_CONTENDED' })]);
      // A key of the arguments is taken inside the interceptor, so only the filter knows about it.
      expect(Number(busy.headers.get('retry-after'))).toBeGreaterThan(0);
      await permit.release();
      const free = await fetch(`${url}/${path}`);
      expect([free.status, await free.text()]).toEqual([200, 'ran']);
    },
  );
});

describe('a registration without permits', () => {
  let nodes: RedlockNodes;
  beforeAll(async () => {
    nodes = await RedlockNodes.start(3);
  });
  afterAll(() => nodes.stop());

  @Injectable()
  class OnRedlock {
    @Limited('x', { limit: 2, registration: 'other' })
    async run(): Promise<void> {}
  }

  it('an application does not start when a method with @Limited has a Redlock, which has no permits, and says why [G884]', async () => {
    const imports = [RedisLockModule.forRoot({ redlock: nodes.urls, name: 'other' })];
    const starting = makeApp({ imports, providers: [OnRedlock] });
    await expect(starting).rejects.toThrow(LockOptionsError);
    await expect(starting).rejects.toThrow(
      /^OnRedlock\.run in RootTestModule is @Limited of the registration "other"\. The store of this registration has no permits\. A Redlock cannot enforce a limit/,
    );
  });
});

it('the testing kit runs methods with @Limited in memory, refuses them, loses their permits and keeps a journal [G885]', async () => {
  const testing = await startModules({ imports: [LockTestingModule.forRoot()], providers: [Partners] });
  const [bench, partners] = [testing.get(LockBench), testing.get(Partners)];
  const { gate, calls } = await full(partners);
  expect(bench.heldKeys).toEqual(['partner:a']);
  await expect(partners.impatient('a')).rejects.toThrow('1 permit of');
  bench.lose('partner:a', 'unavailable');
  gate.open();
  await expect(calls).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'unavailable' });
  bench.refuse('partner:a', 'unavailable');
  await expect(partners.impatient('a')).rejects.toThrow(LockUnavailableError);
  bench.refuse('partner:a', 'contended');
  await expect(partners.impatient('a')).rejects.toThrow('onContended of @Limited');
  const elsewhere = await bench.holdElsewhere('partner:a');
  expect(await partners.skipping('a')).toBeUndefined();
  const large = partners.large('a');
  await elsewhere.release();
  expect(await large).toBe('partner:a');
  const permits = bench.journal.filter(({ event }) => event === 'acquired');
  expect(permits).toEqual([
    expect.objectContaining({ key: 'partner:a', mode: 'permits', permits: 1 }),
    expect.objectContaining({ key: 'partner:a', mode: 'permits', permits: 1 }),
    expect.objectContaining({ key: 'partner:a', mode: 'permits', permits: 2 }),
  ]);
  expect(bench.journal.filter(({ event }) => event === 'lost')).toHaveLength(2);
});

it('two applications on one Redis run a method with @Limited at most `limit` times at once, together [G886]', async () => {
  const server = await redisServer();
  const apps: TestApp[] = [];
  for (const _ of [1, 2]) apps.push(await openApp({ providers: [Partners] }, { redis: server.url, waitMs: 60_000 }));
  const [gate, crowd] = [new Gate(), new Crowd()];
  const calls = apps.flatMap(({ app }) => Array.from({ length: 5 }, () => app.get(Partners).call('a', crowd, gate)));
  const waiters = async ({ locks }: TestApp) => (await locks.inspect('partner:a'))?.waiters ?? 0;
  const all = async () => (await Promise.all(apps.map(waiters))).reduce((sum, each) => sum + each) === 8;
  await until(all, { what: 'two run, and eight wait' });
  expect(crowd.running).toBe(2);
  gate.open();
  await Promise.all(calls);
  expect(crowd.most).toBe(2);
  await until(async () => !(await apps[0]!.locks.isLocked('partner:a')), { what: 'all permits are given back' });
  await Promise.all(apps.map(({ app }) => app.close()));
});
