import { Redis } from 'ioredis';
import { LockOptionsError, LockUnavailableError, type RedisLockModuleOptions } from 'nest-redis-lock';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { failureOf as failedStart } from '../support/failed-start.js';
import { makeApp } from '../support/nest-app.js';
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

async function failureOf(
  options: RedisLockModuleOptions,
  kind: typeof LockOptionsError | typeof LockUnavailableError = LockUnavailableError,
): Promise<Error> {
  const error = await failedStart(options);
  expect(error).toBeInstanceOf(kind);
  return error;
}

it('an application that does not start since nothing listens names host and port, but no password', async () => {
  const { port } = await deadServer();
  const error = await failureOf({ redis: `redis://ada:hunter2@127.0.0.1:${port}`, connectTimeoutMs: 100 });
  expect(error.message).toContain(`127.0.0.1:${port}`);
  expect(`${error.stack} ${JSON.stringify(error)} ${error.cause}`).not.toContain('hunter2');
});

describe('does not wait for Redis to accept credentials that it refused,', () => {
  /** Far more than the run allows: who waits for it fails. */
  const connectTimeoutMs = 600_000;
  const advice =
    'Put the password into the URL (redis://:password@host:6379), or set the option password: for a Cluster in redisOptions of ioredis, or in ' +
    'defaults of node-redis.';

  it('a wrong password', async () => {
    const { port } = await server('--requirepass', 'right');
    const { message } = await failureOf({ redis: `redis://ada:hunter2@127.0.0.1:${port}`, connectTimeoutMs });
    const answer = 'WRONGPASS invalid username-password pair or user is disabled';
    expect(message).toBe(
      `Redis cannot be used: 127.0.0.1:${port}: it refused the credentials: ${answer}. Correct username and password.`,
    );
  });

  it('no password, and says where to put one', async () => {
    const { port } = await server('--requirepass', 'right');
    const { message } = await failureOf({ redis: `redis://127.0.0.1:${port}`, connectTimeoutMs });
    expect(message).toBe(
      `Redis cannot be used: 127.0.0.1:${port}: it needs a password, and none was given: NOAUTH. ${advice}`,
    );
  });

  it('of a majority of the Redlock nodes', async () => {
    const [one, two] = [await server('--requirepass', 'right'), await server('--requirepass', 'right')];
    const good = await server();
    const redlock = [one, good, two].map(({ port }) => `redis://127.0.0.1:${port}`);
    const { message } = await failureOf({ redlock, connectTimeoutMs });
    expect(message.match(/it needs a password, and none was given/g)).toHaveLength(2);
    expect(message.split(advice)).toHaveLength(2);
  });
});

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

  it('a client of the application, which goes on all the same', async () => {
    const redis = await server();
    const client = new Redis(`redis://127.0.0.1:${redis.port}/99`);
    onTestFinished(() => client.disconnect());
    const told = new Promise((resolve) => client.on('error', resolve));
    await client.ping();
    const { message } = await failureOf({ redis: client }, LockOptionsError);
    expect(message).toContain(
      `127.0.0.1:${redis.port} refuses the database of its client (ERR DB index is out of range`,
    );
    expect(message).toContain(advice);
    expect(await told).toMatchObject({ name: 'ReplyError' });
  });

  it.each([{}, { enableReadyCheck: false }])(
    'a right that was taken away, until it is given back (%o)',
    async (more) => {
      const redis = await server();
      await redis.command('ACL', 'SETUSER', 'narrow', ...narrow, '+select');
      const login = { port: redis.port, host: '127.0.0.1', username: 'narrow', password: 'secret', db: 1 };
      const { locks } = await makeApp({}, { redis: { ...login, ...more }, commandTimeoutMs: 200 });
      await redis.command('ACL', 'SETUSER', 'narrow', '-select');
      await redis.command('CLIENT', 'KILL', 'USER', 'narrow');
      await until(
        () =>
          locks.tryAcquire('x').then(
            () => false,
            (error: Error) => error.message.includes(advice),
          ),
        {
          what: 'the new connection is refused its database',
        },
      );
      expect(await redis.keys()).toEqual([]);
      await redis.command('ACL', 'SETUSER', 'narrow', '+select');
      const lock = await until(() => locks.tryAcquire('x').catch(() => null), { what: 'it is accepted' });
      expect(await redis.keys()).toEqual([]);
      await lock.release();
    },
  );
});

it('waits for a server that refuses to select the database because it is busy', async () => {
  const redis = await server();
  await redis.command('CONFIG', 'SET', 'lua-time-limit', '1');
  const admin = new Redis(redis.url);
  onTestFinished(() => admin.disconnect());
  const busy = admin.eval('while true do end', 0).catch((error: Error) => error.message);
  await until(
    () =>
      redis.command('PING').then(
        () => false,
        (error: Error) => error.message.startsWith('BUSY'),
      ),
    {
      what: 'the script runs',
    },
  );
  const client = new Redis(`${redis.url}/1`, {
    lazyConnect: true,
    retryStrategy: () => 20,
    disableClientInfo: true,
    protocol: 2,
  });
  const refused = new Promise<Error>((resolve) => client.on('error', resolve));
  const starting = makeApp({}, { redis: () => client, connectTimeoutMs: 60_000 });
  expect((await refused).message).toMatch(/^BUSY/);
  await redis.command('SCRIPT', 'KILL');
  expect(await busy).toMatch(/killed/i);
  const { locks } = await starting;
  await locks.withLock('x', () => {});
  expect(await redis.keys()).toEqual([]);
});

it('starts on a Redlock of which one node refuses the credentials', async () => {
  const redlock = (await Promise.all([server('--requirepass', 'right'), server(), server()])).map(({ url }) => url);
  const { log } = await makeApp({}, { redlock, connectTimeoutMs: 60_000, admission: false });
  expect(log.lines.join()).toContain('it needs a password, and none was given: NOAUTH');
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
