import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  Controller,
  Get,
  Inject,
  Injectable,
  Scope,
  UseGuards,
  type BeforeApplicationShutdown,
  type CanActivate,
  type ModuleMetadata,
  type OnModuleDestroy,
} from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Redis } from 'ioredis';
import {
  getLockServiceToken,
  LeaderOnly,
  Locked,
  LockOptionsError,
  LockService,
  LockUnavailableError,
  RedisLockModule,
  type Lock,
} from 'nest-redis-lock';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { Gate } from '../support/gate.js';
import { makeApp, RecordingLogger, startApp, type TestApp } from '../support/nest-app.js';
import { serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';
import { keysOfLocks } from '../support/stored.js';

const redis = await serverOfFile();
let gate: Gate;
let began: boolean;
beforeEach(async () => {
  gate = new Gate();
  began = false;
  await redis.command('FLUSHALL');
});

@Controller()
class Handlers {
  @Get('slow')
  @Locked('slow')
  async slow(): Promise<string> {
    began = true;
    await gate.opened;
    return 'delivered';
  }
}

const connections = async (name: string) =>
  ((await redis.command('CLIENT', 'LIST')) as string).split('\n').filter((line) => line.includes(` name=${name} `));

/** On its own connection: a connection that is kept alive would delay the HTTP server, which closes after the locks. */
const get = (url: string) =>
  new Promise<string>((resolve, reject) => {
    const call = request(url, { agent: false }, (response) =>
      text(response).then((body) => resolve(`${response.statusCode} ${body}`), reject),
    );
    call.on('error', reject).end();
  });

it('closing the application lets a locked request finish, rejects waiters at once, and leaves neither key nor connection [G191]', async () => {
  const source = { host: '127.0.0.1', port: redis.port, connectionName: 'closing' };
  const { app, url, locks } = await startApp({ controllers: [Handlers] }, { redis: source });
  const first = get(`${url}/slow`);
  await until(() => began, { what: 'the handler runs' });
  const second = get(`${url}/slow`);
  await until(async () => (await locks.inspect('slow'))?.waiters === 1, { what: 'a request waits' });
  expect(await connections('closing')).not.toEqual([]);

  const closing = app.close();
  expect(await second).toMatch(/^503 /);
  expect(await redis.keys('lock:{slow}')).toEqual(['lock:{slow}']);
  await expect(locks.acquire('other')).rejects.toBeInstanceOf(LockUnavailableError);

  gate.open();
  expect(await first).toBe('200 delivered');
  await closing;
  expect(await redis.keys('lock:{slow}')).toEqual([]);
  expect(await connections('closing')).toEqual([]);
});

class Careless {
  @Locked('k', { policy: 'unknown' } as object)
  async run(): Promise<void> {}
}
const withRedis = (options: object = {}) =>
  RedisLockModule.forRoot({ redis: { host: '127.0.0.1', port: redis.port, connectionName: 'refused' }, ...options });

@Injectable({ scope: Scope.REQUEST })
class LeaderOfARequest {
  @LeaderOnly('outbox')
  async tick(): Promise<void> {}
}
@Injectable()
class CarelessGuard extends Careless implements CanActivate {
  canActivate(): boolean {
    return true;
  }
}
@Controller()
class Guarded {
  @Get()
  @UseGuards(CarelessGuard)
  get(): void {}
}
/** A registration whose options come after the others have been refused. */
const late = RedisLockModule.forRootAsync({
  name: 'late',
  useFactory: async () => {
    await nextTurn();
    return { redis: { host: '127.0.0.1', port: redis.port, connectionName: 'refused' } };
  },
});

it.each<[string, () => ModuleMetadata]>([
  ['an option of a decorator', () => ({ imports: [withRedis()], providers: [Careless] })],
  ['an option of a decorator in a guard', () => ({ imports: [withRedis()], controllers: [Guarded] })],
  ['an election of a class of request scope', () => ({ imports: [withRedis()], providers: [LeaderOfARequest] })],
  ['an option of another registration', () => ({ imports: [withRedis(), withRedis({ name: 'b', ttlMs: 0 })] })],
  ['an option of a registration that comes before', () => ({ imports: [late, withRedis({ name: 'b', ttlMs: 0 })] })],
  ['a second registration of the same name', () => ({ imports: [withRedis(), withRedis({ fair: true })] })],
  ['a lock module without forRoot', () => ({ imports: [withRedis(), RedisLockModule] })],
])('an application that does not start because of %s leaves no connection [G945]', async (_, metadata) => {
  const starting = Test.createTestingModule(metadata()).setLogger(new RecordingLogger()).compile();
  await expect(starting.then((module) => module.createNestApplication().init())).rejects.toBeInstanceOf(
    LockOptionsError,
  );
  await until(async () => (await connections('refused')).length === 0, { what: 'the connections are closed' });
});

it('logs that it still waits for permits, and how many of each key, until the last of them is released [G897]', async () => {
  const { app, locks, log, events } = await makeApp({}, { memory: true, shutdownTimeoutMs: 60_000 });
  const take = (permits: number) => locks.acquirePermits('leaked', { limit: 9, permits });
  const [first, ...leaked] = [await take(4), await take(2), await take(1)];
  const downgraded = await locks.acquire('downgraded');
  const kept = await locks.acquire('kept');
  const closing = app.close();
  await until(() => events.some(({ type }) => type === 'closing'), { what: 'it waits for permits' });
  await first!.release();
  await (await downgraded.downgrade()).release();
  await until(() => log.lines.length > 0, { what: 'it says what it waits for' });
  expect(log.lines).toEqual([
    'error Waiting for locks to be released, for up to 60000 ms (shutdownTimeoutMs): 3 permits of "leaked", "kept". ' +
      'If their work has ended, a release or an await is missing.',
  ]);
  for (const each of [...leaked, kept]) await each.release();
  await closing;
});

it('closing the application leaves a client of the application open and unchanged [G192]', async () => {
  const client = new Redis(redis.port, { connectionName: 'handed' });
  onTestFinished(() => client.disconnect());
  await client.ping();
  const before = Object.keys(client).sort();
  const { app, locks } = await makeApp({}, { redis: client });
  await locks.withLock('x', () => {});
  await app.close();
  expect([client.status, await client.ping()]).toEqual(['ready', 'PONG']);
  expect(Object.keys(client).sort()).toEqual(before);
  expect(['ready', 'end', 'error'].map((event) => client.listenerCount(event))).toEqual([0, 0, 0]);
});

/** An application with two registrations, and the service of the second one. */
async function makeShop(
  first: Parameters<typeof makeApp>[1] = { memory: true },
  second: Parameters<typeof makeApp>[1] = { memory: true },
): Promise<TestApp & { billing: LockService }> {
  const billing = RedisLockModule.forRoot({ ...second, name: 'billing' });
  const made = await makeApp({ imports: [billing] }, first);
  return { ...made, billing: made.app.get(getLockServiceToken('billing')) };
}

/** Whether it has settled after everything that could happen by now. */
async function isPending(promise: Promise<unknown>): Promise<boolean> {
  for (let turns = 0; turns < 20; turns++) await nextTurn();
  return (await Promise.race([promise.then(() => 'settled'), nextTurn('pending')])) === 'pending';
}

/** Whether calls that hold nothing can no longer get a lock, although it is free. */
const isRefusing = (locks: LockService): Promise<boolean> =>
  locks.withLock('free', () => false).catch((error: unknown) => error instanceof LockUnavailableError);

/** Work under a lock that lasts until the test ends it. */
async function working<T>(locks: LockService, key: string, end: (lock: Lock) => T | Promise<T>) {
  const [begun, finish] = [new Gate(), new Gate()];
  const call = locks.withLock(key, async (lock) => {
    begun.open();
    await finish.opened;
    return end(lock);
  });
  call.catch(() => {});
  await begun.opened;
  return { call, finish };
}

describe('an application with two registrations', () => {
  it('closing an application closes both registrations at once: waiters of either are rejected, nobody gets a lock any more, and all work may finish [G217]', async () => {
    const { app, locks, billing } = await makeShop(
      { redis: redis.url, commandTimeoutMs: 20_000 },
      { redis: redis.url, commandTimeoutMs: 20_000, keyPrefix: 'bills' },
    );
    const works = [await working(locks, 'busy', () => 'first'), await working(billing, 'busy', () => 'second')];
    const waiting = [locks, billing].map((service) => service.acquire('busy').catch((error: unknown) => error));
    for (const service of [locks, billing])
      await until(async () => (await service.inspect('busy'))?.waiters === 1, { what: 'a call waits' });

    const closing = app.close();
    expect(await Promise.all(waiting)).toEqual([expect.any(LockUnavailableError), expect.any(LockUnavailableError)]);
    for (const service of [locks, billing])
      await until(() => isRefusing(service), { what: 'it no longer grants locks' });

    works[0]!.finish.open();
    expect(await works[0]!.call).toBe('first');
    expect(await isPending(closing)).toBe(true);
    works[1]!.finish.open();
    expect(await works[1]!.call).toBe('second');
    await closing;
    expect(await keysOfLocks(redis)).toEqual([]);
  });

  it('closing an application with two registrations waits for all work for a total of one shutdownTimeoutMs, the longest one [G218]', async () => {
    const { app, locks, billing } = await makeShop(
      { memory: true, shutdownTimeoutMs: 30_000 },
      { memory: true, shutdownTimeoutMs: 60_000 },
    );
    const kept = [await locks.acquire('leaked'), await billing.acquire('leaked')];
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    let isClosed = false;
    const closing = app.close().then(() => (isClosed = true));
    for (let turns = 0; turns < 20; turns++) await nextTurn();
    await vi.advanceTimersByTimeAsync(59_999);
    expect([isClosed, ...kept.map(({ signal }) => signal.aborted)]).toEqual([false, false, false]);
    await vi.advanceTimersByTimeAsync(1);
    await closing;
    expect(kept.map(({ signal }) => signal.reason)).toEqual([
      expect.objectContaining({ reason: 'shutdown' }),
      expect.objectContaining({ reason: 'shutdown' }),
    ]);
  });

  it('work that holds a lock of one registration gets the locks of the other while the application closes, though no call held any there [G219]', async () => {
    const { app, locks, billing } = await makeShop(
      { memory: true, shutdownTimeoutMs: 600_000 },
      { memory: true, shutdownTimeoutMs: 0 },
    );
    const { call, finish } = await working(locks, 'order', () => billing.withLock('bill', ({ isHeld }) => isHeld));
    const closing = app.close();
    await until(() => isRefusing(billing), { what: 'it no longer grants locks' });
    finish.open();
    expect(await call).toBe(true);
    await closing;
  });

  it('closing an application leaves another application of the process as it is [G222]', async () => {
    const [shop, other] = [await makeShop(), await makeShop()];
    const held = [await other.locks.acquire('held'), await other.billing.acquire('held')];
    const waits = other.billing.acquire('held');
    await shop.app.close();
    expect(held.map((lock) => [lock.closing.aborted, lock.isHeld])).toEqual([
      [false, true],
      [false, true],
    ]);
    for (const lock of held) await lock.release();
    expect(await (await waits).release()).toBe(true);
    expect(await other.locks.withLock('new', ({ isHeld }) => isHeld)).toBe(true);
  });
});

it('a closing application gives out locks until all hooks of onModuleDestroy and beforeApplicationShutdown are done, but no longer lets calls wait [G221]', async () => {
  const outcomes: Record<string, unknown> = {};

  @Injectable()
  class Hooks implements OnModuleDestroy, BeforeApplicationShutdown {
    constructor(@Inject(LockService) private readonly locks: LockService) {}

    async onModuleDestroy(): Promise<void> {
      await this.note('onModuleDestroy');
    }

    async beforeApplicationShutdown(): Promise<void> {
      await this.note('beforeApplicationShutdown');
    }

    async onApplicationShutdown(): Promise<void> {
      await this.note('onApplicationShutdown');
    }

    private async note(hook: string): Promise<void> {
      const { signal } = new AbortController(); // a call with a signal can be refused at any time
      const free = await this.locks.acquire('free', { signal }).catch((error: unknown) => error);
      const tried = await this.locks.tryAcquire('free').catch((error: unknown) => error);
      const busy = await this.locks.acquire('busy').catch((error: unknown) => error);
      if (free && typeof free === 'object' && 'release' in free) await (free as Lock).release();
      outcomes[hook] = { free, tried, busy };
    }
  }

  const { app, locks } = await makeApp(
    { providers: [Hooks] },
    { redis: redis.url, commandTimeoutMs: 20_000, shutdownTimeoutMs: 0 },
  );
  await locks.acquire('busy');
  await app.close();
  const refused = expect.any(LockUnavailableError);
  const granted = { free: expect.objectContaining({ key: 'free' }), tried: null, busy: refused };
  expect(outcomes).toEqual({
    onModuleDestroy: granted,
    beforeApplicationShutdown: granted,
    onApplicationShutdown: { free: refused, tried: refused, busy: refused },
  });
});
