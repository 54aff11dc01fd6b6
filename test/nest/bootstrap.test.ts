import { Test } from '@nestjs/testing';
import { LockUnavailableError, RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { afterEach, expect, it } from 'vitest';
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
