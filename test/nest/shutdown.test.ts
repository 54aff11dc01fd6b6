import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { Controller, Get, Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { Locked, LockLostError, LockService, LockUnavailableError, RedisLockModule } from 'nest-redis-lock';
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { Gate } from '../support/gate.js';
import { makeApp, startApp } from '../support/nest-app.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

let redis: RedisServer;
beforeAll(async () => {
  redis = await RedisServer.start();
});
afterAll(() => redis.stop());

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

@Injectable()
class Jobs {
  reason: unknown;
  constructor(readonly locks: LockService) {}

  @Locked('job')
  async run(): Promise<string> {
    began = true;
    const { signal } = this.locks.current();
    await new Promise((aborted) => signal.addEventListener('abort', aborted));
    this.reason = signal.reason;
    return 'ended';
  }

  @Locked('job')
  async waits(): Promise<void> {}
}

const connections = async (name: string) =>
  ((await redis.command('CLIENT', 'LIST')) as string).split('\n').filter((line) => line.includes(` name=${name} `));

/** On a connection of its own: one that is kept alive would hold up the HTTP server, which closes after the locks. */
const get = (url: string) =>
  new Promise<string>((resolve, reject) => {
    const call = request(url, { agent: false }, (response) =>
      text(response).then((body) => resolve(`${response.statusCode} ${body}`), reject),
    );
    call.on('error', reject).end();
  });

const runs = () => until(() => began, { what: 'the handler runs' });

it('lets a locked request finish, refuses who waits at once, and leaves neither key nor connection', async () => {
  const source = { host: '127.0.0.1', port: redis.port, connectionName: 'closing' };
  const { app, url, locks } = await startApp({ controllers: [Handlers] }, { redis: source });
  const first = get(`${url}/slow`);
  await runs();
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

it('tells work that does not end in time, and gives its lock back', async () => {
  const { app } = await makeApp({ providers: [Jobs] }, { redis: redis.url, shutdownTimeoutMs: 50 });
  const jobs = app.get(Jobs);
  const job = jobs.run().catch((error: unknown) => error);
  await runs();
  const waiting = jobs.waits().catch((error: unknown) => error);
  await app.close();
  expect(await waiting).toBeInstanceOf(LockUnavailableError);
  expect(await job).toBeInstanceOf(LockLostError);
  expect(await job).toMatchObject({ reason: 'shutdown', outcome: { status: 'fulfilled', value: 'ended' } });
  expect(jobs.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'shutdown' });
  expect(await redis.keys('lock:{job}')).toEqual([]);
});

it('logs as an error, which tests print, which locks it still waits for after a second', async () => {
  const { app, locks, log, events } = await makeApp({}, { memory: true, shutdownTimeoutMs: 60_000 });
  const leaked = await Promise.all(Array.from({ length: 12 }, (_, index) => locks.acquire(`leaked ${index}`)));
  const inTime = await locks.acquire('in time');
  const closing = app.close();
  await until(() => events.some(({ type }) => type === 'closing'), { what: 'it waits for locks' });
  await inTime.release();
  await until(() => log.lines.length > 0, { what: 'it says what it waits for' });
  const named = leaked.slice(0, 10).map(({ key }) => `"${key}"`);
  expect(log.lines).toEqual([
    `error Waiting for locks to be released, for up to 60000 ms (shutdownTimeoutMs): ${named.join(', ')}, 2 more. ` +
      'If their work has ended, a release or an await is missing.',
  ]);
  for (const lock of leaked) await lock.release();
  await closing;
  expect(log.lines).toHaveLength(1);
});

it('leaves a client that it was handed open and as it was', async () => {
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

it('closes a client that a function made for it', async () => {
  const make = () => new Redis(redis.port, { connectionName: 'made' });
  const { app, locks } = await makeApp({}, { redis: make });
  await locks.withLock('x', () => {});
  expect(await connections('made')).toHaveLength(1);
  await app.close();
  await until(async () => (await connections('made')).length === 0, { what: 'the connection is closed' });
});

it('closes the connections of every registration', async () => {
  const source = { host: '127.0.0.1', port: redis.port, connectionName: 'several' };
  const billing = RedisLockModule.forRoot({ name: 'billing', redis: source });
  const { app } = await makeApp({ imports: [billing] }, { redis: source });
  expect(await connections('several')).toHaveLength(2);
  await app.close();
  await until(async () => (await connections('several')).length === 0, { what: 'the connections are closed' });
});
