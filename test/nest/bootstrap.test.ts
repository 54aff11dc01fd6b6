import { Test } from '@nestjs/testing';
import { LockUnavailableError, RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { afterEach, describe, expect, it } from 'vitest';
import { makeApp, RecordingLogger } from '../support/nest-app.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

const servers: RedisServer[] = [];
afterEach(() => Promise.all(servers.splice(0).map((server) => server.stop())));

async function server(...args: string[]): Promise<RedisServer> {
  const started = await RedisServer.start({ args });
  servers.push(started);
  return started;
}

async function deadServer(): Promise<RedisServer> {
  const dead = await RedisServer.start();
  await dead.stop();
  return dead;
}

async function failureOf(options: RedisLockModuleOptions): Promise<LockUnavailableError> {
  const error = await Test.createTestingModule({ imports: [RedisLockModule.forRoot(options)] })
    .setLogger(new RecordingLogger())
    .compile()
    .catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockUnavailableError);
  return error as LockUnavailableError;
}

it('does not start when nothing listens, within its limit, and names host and port but no password', async () => {
  const { port } = await deadServer();
  const startedAt = performance.now();
  const error = await failureOf({ redis: `redis://ada:hunter2@127.0.0.1:${port}`, connectTimeoutMs: 100 });
  expect(performance.now() - startedAt).toBeLessThan(4_000); // the default is 5 000
  expect(error.message).toContain(`127.0.0.1:${port}`);
  expect(`${error.stack} ${JSON.stringify(error)} ${error.cause}`).not.toContain('hunter2');
});

it('does not start when Redis accepts connections but does not answer', async () => {
  const hung = await server();
  hung.pause();
  const error = await failureOf({ redis: hung.url, connectTimeoutMs: 100 });
  expect(error.message).toContain(`127.0.0.1:${hung.port}`);
});

it('does not start with a wrong password, and does not repeat it', async () => {
  const guarded = await server('--requirepass', 'right');
  const error = await failureOf({ redis: `redis://:hunter2@127.0.0.1:${guarded.port}`, connectTimeoutMs: 300 });
  expect(error.message).toContain(`127.0.0.1:${guarded.port}`);
  expect(error.message).toMatch(/WRONGPASS|NOAUTH/);
  expect(`${error.stack} ${JSON.stringify(error)} ${error.cause}`).not.toContain('hunter2');
});

describe('does not wait for Redis to accept credentials that it refused,', () => {
  /** Far more than the run allows: who waits for it fails. */
  const connectTimeoutMs = 600_000;
  const advice = 'Correct username and password.';

  it.each([
    ['a wrong password', 'ada:hunter2@', 'WRONGPASS invalid username-password pair or user is disabled'],
    ['no password', '', 'NOAUTH [^.]*'],
  ])('%s', async (_, credentials, answer) => {
    const { port } = await server('--requirepass', 'right');
    const { message } = await failureOf({ redis: `redis://${credentials}127.0.0.1:${port}`, connectTimeoutMs });
    const said = `^Redis cannot be used: 127\\.0\\.0\\.1:${port}: it refused the credentials: ${answer}\\. ${advice}$`;
    expect(message).toMatch(new RegExp(said));
    expect(message).not.toContain('hunter2');
  });

  it('of a majority of the Redlock nodes', async () => {
    const [one, two] = [await server('--requirepass', 'right'), await server('--requirepass', 'right')];
    const good = await server();
    const redlock = [one, good, two].map(({ port }) => `redis://127.0.0.1:${port}`);
    const { message } = await failureOf({ redlock, connectTimeoutMs });
    expect(message.match(/it refused the credentials/g)).toHaveLength(2);
    expect(message.split(advice)).toHaveLength(2);
  });
});

it('starts on a Redlock of which one node refuses the credentials', async () => {
  const redlock = (await Promise.all([server('--requirepass', 'right'), server(), server()])).map(({ url }) => url);
  const { log } = await makeApp({}, { redlock, connectTimeoutMs: 20_000, restartGuard: false });
  expect(log.lines.join()).toContain('it refused the credentials: NOAUTH');
});

it('works as soon as Redis accepts the credentials that it refused, once it has started', async () => {
  const redis = await server();
  const { locks } = await makeApp({}, { redis: `redis://:right@127.0.0.1:${redis.port}`, commandTimeoutMs: 200 });
  await redis.command('CONFIG', 'SET', 'requirepass', 'changed');
  await redis.command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  const refusal = await until(
    async () => {
      const error: unknown = await locks.tryAcquire('x').catch((reason: unknown) => reason);
      return error instanceof LockUnavailableError && error.message.includes('WRONGPASS') ? error : undefined;
    },
    { what: 'the new connection is refused' },
  );
  expect(refusal.message).toContain('. Correct username and password.');
  await redis.command('CONFIG', 'SET', 'requirepass', 'right');
  const lock = await until(() => locks.tryAcquire('x').catch(() => null), { what: 'it is accepted' });
  expect(lock.isHeld).toBe(true);
  await lock.release();
});

it('does not start when a majority of the Redlock nodes is gone, and names each', async () => {
  const [one, two, alive] = [await deadServer(), await deadServer(), await server()];
  const error = await failureOf({ redlock: [one.url, two.url, alive.url], connectTimeoutMs: 100 });
  expect(error.message).toContain(`127.0.0.1:${one.port}`);
  expect(error.message).toContain(`127.0.0.1:${two.port}`);
  expect(error.message).not.toContain(`127.0.0.1:${alive.port}`);
});

it('starts without Redis with lazyConnect, fails each acquire until it is there, and then works', async () => {
  const { port } = await deadServer();
  const { locks } = await makeApp({}, { redis: `redis://127.0.0.1:${port}`, lazyConnect: true, commandTimeoutMs: 200 });
  const error = await locks.acquire('x', { waitMs: 0 }).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockUnavailableError);
  expect((error as Error).message).toContain(`127.0.0.1:${port}`);

  servers.push(await RedisServer.start({ port }));
  const acquired = await until(() => locks.tryAcquire('x').catch(() => null), { what: 'Redis is reached' });
  expect(acquired.isHeld).toBe(true);
  await acquired.release();
});
