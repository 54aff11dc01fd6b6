import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { LockService, RedisLockModuleOptions } from 'nest-redis-lock';
import { nodeError } from '../../lib/stores/redis/client/advice.js';
import { redisServer } from '../support/stage.js';
import { letVote } from '../support/let-vote.js';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { aclUser, refusals, RIGHTS } from './acl-user.js';
import { commandTimeoutMs, diagnosed } from './diagnosed.js';
import { shardOf } from '../support/stored.js';

/** What the doctor says that it cannot see without the right that shows all settings. */
const UNSEEN = 'snapshots and appendfsync: no right to config|get';
/** What was refused, but for the settings, which are asked for, and done without. */
const needed = (refused: readonly string[]) => refused.filter((what) => what !== 'config|get');

let servers: RedisServer[];
/** It gets ready while the other tests run. */
let starting: Promise<RedisCluster>;
beforeAll(async () => {
  starting = RedisCluster.start();
  servers = await Promise.all([1, 2, 3].map(() => RedisServer.start()));
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
  await (await starting).stop();
});

const open = (options: RedisLockModuleOptions) => openLocks({ commandTimeoutMs, ...options });

/** All that the library does, on a Redlock too: `inQueue` tells when that many wait for a key. */
async function wholePath(
  [a, b]: readonly [LockService, LockService],
  inQueue: (key: string, count: number) => Promise<void>,
): Promise<void> {
  const lock = await a.acquire('path');
  expect(await b.tryAcquire('path')).toBeNull();
  const waiting = b.acquire('path');
  await inQueue('path', 1);
  await lock.extend(30_000);
  expect(await b.inspect('path')).toMatchObject({ fencingToken: lock.fencingToken, holder: { pid: process.pid } });
  expect(await lock.release()).toBe(true);
  const handedOver = await waiting;
  expect(handedOver.fencingToken).toBeGreaterThan(lock.fencingToken);

  const controller = new AbortController();
  const aborted = a.acquire('path', { signal: controller.signal }).catch((error: unknown) => error);
  await inQueue('path', 1);
  controller.abort(new Error('enough'));
  expect(await aborted).toBe(controller.signal.reason);
  await inQueue('path', 0);

  expect(await a.forceRelease('path')).toBe(true);
  expect(await a.isLocked('path')).toBe(false);
  expect(await handedOver.release()).toBe(false);
}

const listening = async (server: RedisServer) =>
  ((await server.command('PUBSUB', 'CHANNELS', 'lock:inbox:*')) as string[]).length;

/** Both services have waited for some lock, so they hear of their turns. */
async function bothListen([a, b]: readonly [LockService, LockService], on: readonly RedisServer[]): Promise<void> {
  for (const [locks, others, count] of [
    [a, b, 1],
    [b, a, 2],
  ] as const) {
    const holder = await locks.acquire('before');
    const waiting = others.acquire('before');
    await until(async () => (await Promise.all(on.map(listening))).every((listeners) => listeners === count), {
      what: 'it listens',
    });
    await holder.release();
    await (await waiting).release();
  }
}

describe('A user of Redis with the rights that docs/operations.md names', () => {
  it('a user with the documented rights may do all that locks on one Redis need, and Redis refuses it nothing [G232]', async () => {
    const [server] = servers as [RedisServer];
    const redis = await aclUser(server);
    const both = [await open({ redis }), await open({ redis })] as const;
    await server.resetCalls();
    await bothListen(both, [server]);
    await wholePath(both, (key, count) => untilQueued(server, key, count));
    const used = await server.calls();
    expect(await refusals(server)).toEqual([]);
    // A right that nothing uses would be one too many.
    const commands = RIGHTS.filter((right) => right.startsWith('+'));
    expect(commands.length).toBeGreaterThan(14);
    expect(commands.filter((right) => used[right.slice(1)] === undefined)).toEqual([]);
  });

  it('a user with the documented rights may do all that a Redlock needs, and no node refuses it anything [G233]', async () => {
    await letVote(servers);
    const redlock = await Promise.all(servers.map((server) => aclUser(server)));
    const both = [await open({ redlock }), await open({ redlock })] as const;
    // Counters that differ are made equal before a token is issued.
    await Promise.all(servers.map((server, index) => server.command('SET', shardOf('path'), 2 ** 52 + index * 1_000)));
    await bothListen(both, servers);
    await wholePath(both, async (key, count) => {
      // On the slowest node the question of the next one may come before the lock: there he does not wait.
      const agree = async () =>
        (await Promise.all(servers.map((server) => queued(server, key)))).filter((n) => n === count);
      await until(async () => (await agree()).length >= 2, { what: `${count} wait for the lock "${key}"` });
    });
    expect(needed((await Promise.all(servers.map((server) => refusals(server)))).flat())).toEqual([]);
  });

  it('a user with the documented rights may do all that a Cluster needs, with the further rights that are documented for it [G234]', async () => {
    const cluster = await starting;
    await Promise.all(cluster.nodes.map(refusals)); // those of the tests before
    const sharded = ['+ssubscribe', '+sunsubscribe', '+spublish', '+pubsub|shardnumsub'];
    const also = ['+cluster|slots', '+cluster|info', '+asking', ...sharded, 'resetkeys', '~app:lock:*'];
    const logins = await Promise.all(cluster.nodes.map((node) => aclUser(node, { also })));
    const opened = () =>
      open({
        redis: () =>
          new Cluster(
            cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
            { keyPrefix: 'app:', redisOptions: logins[0]! },
          ),
      });
    const both = [await opened(), await opened()] as const;
    const queued = async (key: string) =>
      (
        await Promise.all(
          cluster.nodes.map((node) => node.command('ZCOUNT', `app:lock:{${key}}:queue`, '0', '+inf').catch(() => 0)),
        )
      ).map(Number);
    await wholePath(both, async (key, count) => {
      const what = `${count} wait for the lock "${key}"`;
      await until(async () => (await queued(key)).reduce((a, b) => a + b) === count, { what });
    });
    const { nodes } = await diagnosed(both[0]);
    expect(nodes.map(({ name }) => name).sort()).toEqual(cluster.nodes.map(({ port }) => `127.0.0.1:${port}`).sort());
    expect(nodes.map(({ missingRights, notChecked }) => [missingRights, notChecked])).toEqual(
      [1, 2, 3].map(() => [[], [UNSEEN]]),
    );
    expect(needed((await Promise.all(cluster.nodes.map((node) => refusals(node)))).flat())).toEqual([]);
  });
});

describe('The doctor', () => {
  /** Nobody is asked for INFO but by the doctor. */
  const quiet = (login: RedisOptions) => ({ ...login, enableReadyCheck: false });

  it('misses no right of such a user, and is refused only what shows the passwords of the server [G534]', async () => {
    const [server] = servers as [RedisServer];
    const locks = await open({ redis: await aclUser(server) });
    const { nodes } = await diagnosed(locks);
    expect(nodes).toEqual([expect.objectContaining({ missingRights: [], unknownCommands: [], notChecked: [UNSEEN] })]);
    expect(nodes[0]!.summary).toContain(`not checked: ${UNSEEN}`);
    expect(new Set(await refusals(server))).toEqual(new Set(['config|get']));
    const thief = new Redis(await aclUser(server));
    onTestFinished(() => thief.disconnect());
    await expect(thief.config('GET', 'requirepass')).rejects.toThrow('NOPERM');
  });

  it('the doctor leaves nothing behind in Redis, neither keys nor connections [G241]', async () => {
    const server = await redisServer();
    const locks = await open({ redis: server.url });
    const connections = async () => ((await server.command('CLIENT', 'LIST')) as string).trim().split('\n').length;
    const before = await connections();
    const dirty = async () => /rdb_changes_since_last_save:(\d+)/.exec((await server.command('INFO')) as string)![1];
    expect(await dirty()).toBe('0');
    await diagnosed(locks);
    expect(await dirty()).toBe('0');
    expect(await server.keys()).toEqual([]);
    await until(async () => (await connections()) === before, { what: 'its connections are closed' });
  });

  it.each(RIGHTS)('the doctor names the right %s when it is missing [G235]', async (right) => {
    const [server] = servers as [RedisServer];
    const redis = quiet(await aclUser(server, { without: [right] }));
    const locks = await open({ redis });
    const { nodes } = await diagnosed(locks);
    expect(nodes.map(({ missingRights }) => missingRights)).toEqual([[right]]);
  });

  it.each([
    ['+set', 'error', 'no lock can be taken'],
    ['~lock:*', 'error', 'no lock can be taken'],
    ['+subscribe', 'warning', 'locks are not handed over'],
    ['&lock:inbox:*', 'warning', 'locks are not handed over'],
    ['+pubsub|numsub', 'warning', 'a lock that is handed over is confirmed before the work under it begins'],
    ['+wait', 'error', 'no lock can be taken'],
  ])(
    'the doctor, and the error of a call, say when %s is missing (%s) that %s',
    async (right, severity, consequence) => {
      const [server] = servers as [RedisServer];
      const redis = await aclUser(server, { without: [right] });
      const waitForReplicas = right === '+wait' ? { count: 1, timeoutMs: 50 } : undefined;
      const locks = await open({ redis, waitForReplicas });
      const { findings } = await diagnosed(locks);
      const [finding] = findings.filter(({ code }) => code === 'missing-rights');
      expect(finding).toMatchObject({ severity, message: expect.stringContaining(` ${right}: ${consequence}`) });
      const said = await locks.acquire('refused').then(
        () => 'warning',
        ({ message }: Error) => /Give its user that right \(ACL SETUSER\)/.test(message) && 'error',
      );
      expect(said).toBe(severity);
    },
  );

  it('the error of a call names the right that a script lacks in the words of Redis 7.2 and Valkey, too [G407]', () => {
    const { advice } = nodeError(
      'a:6379',
      "ERR ACL failure in script: User locks has no permissions to run the 'set' command script: bd6f, on @user_script:1.",
    );
    expect(advice).toContain('Give its user that right (ACL SETUSER)');
  });

  it('the doctor without the rights to check names what it could not check, and finds the rest [G236]', async () => {
    const [server] = servers as [RedisServer];
    const login = await aclUser(server, { without: ['+info', '+zadd'] });
    const locks = await open({ redis: quiet(login) });
    const { nodes, findings } = await diagnosed(locks);
    expect(nodes).toMatchObject([
      {
        reachable: true,
        clockOffsetMs: expect.any(Number),
        missingRights: ['+zadd', '+info'],
        notChecked: ['info: no right to it', UNSEEN],
      },
    ]);
    expect(nodes[0]).not.toHaveProperty('version');
    expect(findings.map(({ severity, code }) => [severity, code])).toEqual([
      ['warning', 'not-checked'],
      ['warning', 'missing-rights'],
    ]);
    expect(JSON.stringify({ nodes, findings })).not.toMatch(/user '?locks\b/i); // newer servers repeat the name
    await locks.withLock('still', () => {});
  });

  it('names commands that the server does not know', async () => {
    const server = await redisServer('--rename-command', 'ZREM', '', '--rename-command', 'PTTL', '');
    const locks = await open({ redis: server.url });
    const { nodes, findings } = await diagnosed(locks);
    expect(nodes).toMatchObject([{ missingRights: [], unknownCommands: ['pttl', 'zrem'] }]);
    expect(
      findings.filter(({ code }) => code === 'unknown-commands').map(({ severity, message }) => [severity, message]),
    ).toEqual([
      ['error', expect.stringContaining('does not know PTTL: no lock can be taken')],
      ['warning', expect.stringContaining('does not know ZREM: locks are not handed over')],
    ]);
  });
});
