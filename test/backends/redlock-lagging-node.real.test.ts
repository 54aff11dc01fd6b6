import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { COMMANDS_IN_FLIGHT } from '../../lib/core/backend/lane.js';
import { openLocks } from '../support/open-locks.js';
import { untilSubscribers } from '../support/queue.js';
import type { RedisServer } from '../support/redis-server.js';
import { clientOf, freeOn, redisServers } from '../support/stage.js';
import { until } from '../support/until.js';

const MORE = COMMANDS_IN_FLIGHT + 10;
const keys = Array.from({ length: MORE }, (_, index) => `held:${index}`);

describe('To a node of a Redlock that lags behind', () => {
  let nodes: RedisServer[];
  let late: RedisServer;
  let locks: LockService;
  /** The commands that the node ran after it was resumed, including commands in scripts. */
  const ran: string[] = [];

  beforeEach(async () => {
    nodes = await redisServers(3);
    late = nodes[2]!;
    locks = await openLocks({ redlock: nodes.map((node) => clientOf(node)), commandTimeoutMs: 60_000, ttlMs: 60_000 });
    await locks.withLock('warm-up', () => {});
    await freeOn(nodes, 'warm-up');
    // It waits once, so that it listens for its turn on all nodes.
    for (const node of nodes) await node.command('SET', 'lock:{taken}', 'another', 'PX', 600_000);
    const isQueued = async () => (await late.keys()).some((key) => key.includes('queue'));
    const patience = new AbortController();
    const given = locks.acquire('taken', { signal: patience.signal }).catch(() => 'given up');
    for (const node of nodes) await untilSubscribers(node, 1);
    await until(isQueued, { what: 'it waits in the queue' });
    patience.abort();
    await given;
    await until(async () => !(await isQueued()), { what: 'it has left the queue' });
    const watching = clientOf(late);
    await watching.ping(); // an own command that runs while MONITOR begins would confuse the client
    const monitor = await watching.monitor();
    onTestFinished(() => monitor.disconnect());
    ran.length = 0;
    monitor.on('monitor', (_time: string, args: string[]) => void ran.push(args.join(' ')));
    late.pause();
    for (const key of keys) await locks.acquire(key); // the last of its votes wait in this process
  });

  const resume = async () => {
    late.resume();
    await until(async () => (await late.keys()).filter((key) => key.startsWith('lock:{held:')).length === MORE, {
      what: 'it has all locks that are held',
    });
  };

  it('no vote is sent for a lock that was released meanwhile, and votes for held locks are sent [G264]', async () => {
    for (let turn = 0; turn < 20; turn++) await (await locks.acquire(`released:${turn}`)).release();
    await resume();
    await locks.acquire('behind them');
    await until(() => ran.some((command) => command.includes('lock:{behind them}')), { what: 'the node runs it' });
    expect(ran.filter((command) => /^set lock:\{released/i.test(command))).toEqual([]);
    expect((await late.keys()).filter((key) => key.includes('released'))).toEqual([]);
  });
});
