import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { LockContendedError, NodeError, type LockService, type RedisLockModuleOptions } from 'nest-redis-lock';
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

/** The text of the doctor if it lacks the right that shows all settings. */
const UNSEEN = 'snapshots and appendfsync: no right to config|get';
/** The refused commands, except those for settings, which the library asks for and can work without. */
const needed = (refused: readonly string[]) => refused.filter((what) => what !== 'config|get');

let servers: RedisServer[];
/** It starts while the other tests run. */
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

/** Everything that the library does, on a Redlock too: `inQueue` resolves when this many wait for a key. */
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

/** Both services have waited for some lock, so they listen for their turns. */
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

describe('A user of Redis with the rights that docs/rights.md names', () => {
  it('a user with the documented rights may do all that locks on one Redis need, and Redis refuses it nothing [G232]', async () => {
    const [server] = servers as [RedisServer];
    const redis = await aclUser(server);
    await server.resetCalls();
    const both = [await open({ redis }), await open({ redis })] as const;
    await bothListen(both, [server]);
    await wholePath(both, (key, count) => untilQueued(server, key, count));
    const used = await server.calls();
    expect(await refusals(server)).toEqual([]);
    // A right that nothing uses would be superfluous.
    const commands = RIGHTS.filter((right) => right.startsWith('+'));
    expect(commands.length).toBeGreaterThan(14);
    expect(commands.filter((right) => used[right.slice(1)] === undefined)).toEqual([]);
  });

  it('a user with the documented rights may do all that a Redlock needs, and no node refuses it anything [G233]', async () => {
    await letVote(servers);
    const without = ['+pubsub|numsub'];
    const redlock = await Promise.all(servers.map((server) => aclUser(server, { without })));
    const both = [await open({ redlock }), await open({ redlock })] as const;
    // Counters that differ are made equal before a token is issued.
    await Promise.all(servers.map((server, index) => server.command('SET', shardOf('path'), 2 ** 52 + index * 1_000)));
    await bothListen(both, servers);
    await wholePath(both, async (key, count) => {
      // On the slowest node the next call's request may come before the lock: it does not wait there.
      const agree = async () =>
        (await Promise.all(servers.map((server) => queued(server, key)))).filter((n) => n === count);
      await until(async () => (await agree()).length >= 2, { what: `${count} wait for the lock "${key}"` });
    });
    expect(needed((await Promise.all(servers.map((server) => refusals(server)))).flat())).toEqual([]);
  });

  it('a user with the documented rights may do all that a Cluster needs, with the additional rights that are documented for it [G234]', async () => {
    const cluster = await starting;
    await Promise.all(cluster.nodes.map(refusals)); // commands of the earlier tests
    const sharded = ['+ssubscribe', '+sunsubscribe', '+spublish', '+pubsub|shardnumsub'];
    const also = ['+cluster|slots', '+cluster|info', '+asking', ...sharded, 'resetkeys', '~app:lock:*'];
    const without = ['+pubsub|numsub'];
    const logins = await Promise.all(cluster.nodes.map((node) => aclUser(node, { also, without })));
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
    expect(nodes.map(({ notChecked }) => notChecked)).toEqual([1, 2, 3].map(() => [UNSEEN]));
    expect(needed((await Promise.all(cluster.nodes.map((node) => refusals(node)))).flat())).toEqual([]);
  });
});

describe('The doctor', () => {
  /** Only the doctor asks for INFO. */
  const quiet = (login: RedisOptions) => ({ ...login, enableReadyCheck: false });

  it('the doctor of such a user is refused only what shows the passwords of the server [G534]', async () => {
    const [server] = servers as [RedisServer];
    const locks = await open({ redis: await aclUser(server) });
    const { nodes } = await diagnosed(locks);
    expect(nodes).toEqual([expect.objectContaining({ notChecked: [UNSEEN] })]);
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

  it('the doctor without the right to check names what it could not check [G236]', async () => {
    const [server] = servers as [RedisServer];
    const locks = await open({ redis: quiet(await aclUser(server, { without: ['+info'] })) });
    const { nodes, findings } = await diagnosed(locks);
    expect(nodes).toMatchObject([
      { reachable: true, clockOffsetMs: expect.any(Number), notChecked: ['info: no right to it', UNSEEN] },
    ]);
    expect(nodes[0]).not.toHaveProperty('version');
    expect(findings.map(({ severity, code }) => [severity, code])).toEqual([['warning', 'not-checked']]);
    expect(JSON.stringify({ nodes, findings })).not.toMatch(/user '?locks\b/i); // newer servers repeat the name
    await locks.withLock('still', () => {});
  });
});

describe('A right that is missing', () => {
  it.each([...RIGHTS.filter((right) => right !== '+info'), '+wait'])(
    'the right %s is named by the first call that is refused, or by a warning of the first that waits [G235]',
    async (right) => {
      const [server] = servers as [RedisServer];
      await server.command('SCRIPT', 'FLUSH');
      const redis = await aclUser(server, { without: [right] });
      const waitForReplicas = right === '+wait' ? { count: 1, timeoutMs: 50 } : undefined;
      const [first, second] = [await open({ redis, waitForReplicas }), await open({ redis })];
      const said: string[] = [];
      for (const locks of [first, second]) {
        locks.events$.subscribe((event) => {
          if (event.type === 'warning') said.push(event.message);
          else if ('causes' in event) said.push(...event.causes.map(({ advice = '' }) => advice));
        });
      }
      const key = `without ${right}`;
      const isSaid = async () => {
        const lock = await first.acquire(key).catch(() => undefined);
        await lock?.extend(30_000).catch(() => undefined);
        const waiting = second.acquire(key, { waitMs: 3_000 }).then((next) => next.release());
        const isOver = waiting.catch(() => undefined);
        const isQueued = async () => (await queued(server, key)) === 1;
        await Promise.race([isOver, until(isQueued, { what: 'it waits' }).catch(() => undefined)]);
        await lock?.release().catch(() => undefined);
        await isOver;
        return said.some((each) => each.includes(`${right} `) && each.includes('(ACL SETUSER)'));
      };
      await until(isSaid, { what: `${right} is named` });
    },
  );

  it.each([
    ['one Redis', () => aclUser(servers[0]!, { without: ['+del'] }).then((redis) => ({ redis }))],
    [
      'a Redlock',
      async () => {
        await letVote(servers);
        return { redlock: await Promise.all(servers.map((server) => aclUser(server, { without: ['+del'] }))) };
      },
    ],
  ] as [string, () => Promise<RedisLockModuleOptions>][])(
    'the refusal of a call for a lock whose release the server refuses says so, and how to end that, on %s [G1076]',
    async (where, options) => {
      const locks = await open(await options());
      const key = `stays on ${where}`;
      await locks.withLock(key, () => {});
      const error = (await locks.acquire(key, { waitMs: 0 }).catch((refusal: unknown) => refusal)) as Error;
      expect(error).toBeInstanceOf(LockContendedError);
      expect(error.message).toMatch(
        / This process has released the lock, but the release was not confirmed: 127\.0\.0\.1:\d+: .*\+del .*\(ACL SETUSER\)\.$/,
      );
      expect(error.cause).toBeInstanceOf(NodeError);
    },
  );

  it('the error of a call also names the right that a script lacks in the wording of Redis 7.2 and Valkey [G407]', () => {
    const { advice } = nodeError(
      'a:6379',
      "ERR ACL failure in script: User locks has no permissions to run the 'set' command script: bd6f, on @user_script:1.",
    );
    expect(advice).toBe('Give its user the right +set (ACL SETUSER).');
  });

  it('the error of a call names all rights of the documentation where Redis does not say which is missing', () => {
    const { advice } = nodeError('a:6379', "ERR The user executing the script can't run this command or subcommand.");
    for (const right of RIGHTS.filter((each) => each.startsWith('+') && each !== '+info')) {
      expect(advice).toMatch(new RegExp(`[ ]\\${right.replace('|', '\\|')}[ ]`));
    }
  });
});
