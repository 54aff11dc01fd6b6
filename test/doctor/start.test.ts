import { Redis } from 'ioredis';
import { LockOptionsError, LockUnavailableError, RedisLockModule } from 'nest-redis-lock';
import { describe, expect, it, onTestFinished } from 'vitest';
import { proxyTo, redisServer, redisServers } from '../support/stage.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { replicaOf } from '../support/replica-of.js';
import { commandTimeoutMs, logOf, logOfAnswering } from './diagnosed.js';
import { failureOf } from '../support/failed-start.js';

const urls = (servers: readonly { url: string }[]) => servers.map(({ url }) => url);
const DURABLE = ['--appendonly', 'yes'];

describe('An application that starts', () => {
  it.each<[what: string, options: string[], logged: RegExp]>([
    [
      'what it found',
      [],
      /^log Locks of "default", on one Redis:\n {2}127.0.0.1:\d+: \w+ [\d.]+, master, 0 replicas, noeviction, append-only file \(fsync everysec\), clock [+-]?\d+ ms \(± \d+\)$/,
    ],
    [
      'a warning of what may cost locks',
      ['--maxmemory-policy', 'allkeys-lru', '--maxmemory', '100mb'],
      /^warn Locks of .*\n.*allkeys-lru.*\n {2}warning: .* may evict locks, and then two callers can hold the same lock/,
    ],
    [
      'an error with which no lock can be had',
      ['--maxmemory', '1'],
      /^error Locks of .*\n {2}error: .* refuses writes \(OOM/s,
    ],
  ])('an application logs in one block, when it starts, %s', async (_, options, logged) => {
    const server = await redisServer(...DURABLE, ...options);
    expect(await logOfAnswering(RedisLockModule.forRoot({ redis: server.url, commandTimeoutMs }))).toEqual([
      expect.stringMatching(logged),
    ]);
    expect(await logOf(RedisLockModule.forRoot({ redis: server.url, lazyConnect: true }))).toEqual([]);
  });

  it('an application starts with a server that is slow, and says after a second that it is [G230]', async () => {
    const server = await redisServer(...DURABLE);
    await server.command('CLIENT', 'PAUSE', 60_000, 'WRITE');
    const lines = await logOf(RedisLockModule.forRoot({ redis: server.url, commandTimeoutMs: 50 }));
    expect(lines).toEqual([expect.stringMatching(/^error .*cannot be reached: no answer within \d+ ms\./s)]);
  });

  it('an application starts with a Redlock of which a minority is dead or hangs, and names those nodes [G231]', async () => {
    const servers = await redisServers(5);
    await servers[0]!.kill();
    servers[1]!.pause();
    const named = servers.slice(0, 2).map(({ port }) => `127.0.0.1:${port}`);
    await until(
      // A node that answers late is also named.
      async () => {
        const lines = await logOf(
          RedisLockModule.forRoot({ redlock: urls(servers), commandTimeoutMs, connectTimeoutMs: 1_000 }),
        );
        expect(lines).toHaveLength(1);
        expect(lines[0]).toMatch(/^warn /);
        const names = [...lines[0]!.matchAll(/warning: (\S+) cannot be reached/g)].map(([, name]) => name);
        expect(names).toEqual(expect.arrayContaining(named));
        return names.length === named.length;
      },
      { what: 'the three others answer in time' },
    );
  });

  it('warns once of Redlock nodes that it has never seen, which do not vote yet, and says what to do', async () => {
    const servers = await Promise.all([1, 2, 3].map(() => redisServer()));
    const lines = await logOf(RedisLockModule.forRoot({ redlock: urls(servers) }));
    const nodes = servers.map(({ port }) => `127.0.0.1:${port}: it votes in \\d+ ms \\(the longest ttlMs is 30000\\)`);
    expect(lines.filter((line) => line.startsWith('warn Redlock nodes'))).toEqual([
      expect.stringMatching(
        new RegExp(`^warn Redlock nodes do not vote yet: ${nodes.join('; ')}\\. Wait: .*admission: false\\.$`),
      ),
    ]);
  });
});

describe('An application does not start', () => {
  it('an application does not start on a Redlock with the same server twice under different addresses, and closes its connections [G225]', async () => {
    const [one, two] = (await redisServers(2)) as [RedisServer, RedisServer];
    const proxy = await proxyTo(one);
    const error = await failureOf({ redlock: [one.url, two.url, proxy.url] });
    expect(error).toBeInstanceOf(LockOptionsError);
    expect(error.message).toMatch(
      new RegExp(`^127.0.0.1:${one.port} and 127.0.0.1:${proxy.port} are the same server \\(run_id [0-9a-f]{40}\\)`),
    );
    const connections = async () => ((await two.command('CLIENT', 'LIST')) as string).trim().split('\n').length;
    await until(async () => (await connections()) === 1, { what: 'only the connection that counts is left' });
  });

  it('an application does not start on a Redlock with a replica of another node [G226]', async () => {
    const [one, two] = (await redisServers(2)) as [RedisServer, RedisServer];
    const replica = await replicaOf(one);
    const error = await failureOf({ redlock: urls([one, two, replica]) });
    expect(error).toBeInstanceOf(LockOptionsError);
    expect(error.message).toContain(`127.0.0.1:${replica.port} is a replica of 127.0.0.1:${one.port}`);
  });

  it('an application does not start on a replica that takes writes [G228]', async () => {
    const master = await redisServer();
    const error = await failureOf({ redis: (await replicaOf(master, master, '--replica-read-only', 'no')).url });
    expect(error).toBeInstanceOf(LockOptionsError);
    expect(error.message).toContain('its master overwrites them, and locks disappear');
  });

  it('an application does not start with a client whose database its server refuses, since it would use another one', async () => {
    const { port } = await redisServer();
    const client = new Redis({ host: '127.0.0.1', port, db: 99 });
    onTestFinished(() => client.disconnect());
    client.on('error', () => {}); // which is all that ioredis does
    const error = await failureOf({ redis: client });
    expect(error).toBeInstanceOf(LockOptionsError);
    expect(error.message).toMatch(/refuses the database of its client \(ERR .*\), which then uses another database/);
  });

  it('an application does not start on a single replica that refuses writes, which is not unsafe, but unavailable [G229]', async () => {
    const master = await redisServer();
    const replica = await replicaOf(master);
    const error = (await failureOf({ redis: replica.url })) as LockUnavailableError;
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(error.message).toMatch(/is a replica of \S+ and refuses writes: it cannot grant locks\. Name its master/);
    expect(error.causes).toMatchObject([{ node: `127.0.0.1:${replica.port}` }]);
  });
});
