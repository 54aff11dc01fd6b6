import { Redis } from 'ioredis';
import { LockOptionsError, LockUnavailableError, type RedisLockModuleOptions } from 'nest-redis-lock';
import { afterEach, describe, expect, it } from 'vitest';
import { failureOf as failedStart } from '../support/failed-start.js';
import { RedisServer } from '../support/redis-server.js';

const servers: RedisServer[] = [];
afterEach(() => Promise.all(servers.splice(0).map((server) => server.stop())));

async function server(...args: string[]): Promise<RedisServer> {
  const started = await RedisServer.start({ args });
  servers.push(started);
  return started;
}

async function failureOf(
  options: RedisLockModuleOptions,
  kind: typeof LockOptionsError | typeof LockUnavailableError = LockUnavailableError,
): Promise<Error> {
  const error = await failedStart(options);
  expect(error).toBeInstanceOf(kind);
  return error;
}

describe('does not take locks in another database than it was given, where nobody else looks for them:', () => {
  const narrow = ['on', '>secret', 'allkeys', 'allchannels', '+@all', '-select'];
  const advice = 'Give its user the right +select, or name a database that it has.';

  it.each([
    ['a database that the server does not have', 'redis://127.0.0.1', 99, /ERR DB index is out of range\. /],
    ['a user without the right to it', 'redis://narrow:secret@127.0.0.1', 1, /NOPERM .*\. /],
  ])('%s', async (_, url, database, refusal) => {
    const redis = await server();
    await redis.command('ACL', 'SETUSER', 'narrow', ...narrow);
    const given = `${url}:${redis.port}/${database}`;
    for (const options of [{ redis: given }, { redis: () => new Redis(given, { lazyConnect: true }) }]) {
      const { message } = await failureOf({ ...options, connectTimeoutMs: 600_000 });
      expect(message).toContain(`127.0.0.1:${redis.port}: it refused the database: `);
      expect(message).toMatch(refusal);
      expect(message).toContain(advice);
    }
  });
});
