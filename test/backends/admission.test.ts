import { beforeEach, describe, expect, it } from 'vitest';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import type { AcquireOutcome, LockBackend } from 'nest-redis-lock/testing';
import { identify } from '../../lib/stores/redis/client/server-identity.js';
import { acquireOn, backendOf, claimOn, connected, freshKey, granted } from '../support/claims.js';
import { portOf } from '../support/port-of.js';
import type { RedisServer } from '../support/redis-server.js';
import { RedlockNodes, redlockNodes } from '../support/redlock-nodes.js';
import { clientOf, proxyTo, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

/** Longer than any test takes: a node that has to wait for it does not vote in the test. */
const LONG_MS = 120_000;
/** Time enough for a node that runs, on a busy machine. */
const NODE_MS = 10_000;
/** For calls that wait for a node that has just died. */
const SHORT_MS = 1_000;

describe('A node of a Redlock', () => {
  let nodes: RedlockNodes;
  beforeEach(async () => {
    nodes = await redlockNodes(3);
  });

  const open = (options: Partial<RedisLockModuleOptions> = {}) => {
    const defaults = { redlock: nodes.urls, ttlMs: LONG_MS, commandTimeoutMs: NODE_MS };
    return backendOf({ ...defaults, ...options } as RedisLockModuleOptions);
  };
  const attempt = (backend: LockBackend, ttlMs = LONG_MS) => acquireOn(backend, claimOn(freshKey(), ttlMs));
  const abstaining = (outcome: AcquireOutcome) =>
    outcome.status === 'unavailable'
      ? outcome.causes
          .filter(({ problem }) => /^it votes in|^it has lost its data/.test(problem))
          .map(({ node }) => node)
      : [];
  /** The memory of the node: since when it votes, the longest ttl, and during which start it learned that. */
  const guard = async (node: number) =>
    ((await nodes.servers[node]!.command('GET', 'lock:admission')) as string | null) ?? '';
  /** Reduces the other nodes to so few that this one decides. */
  const withoutAnother = (node: number) => nodes.kill((node + 1) % 3);
  const restart = async (...which: number[]) => {
    for (const node of which) {
      await nodes.servers[node]!.kill();
      await nodes.servers[node]!.restart();
    }
  };

  it('a Redlock node that restarted does not vote, neither for clients that were connected nor for later ones [G90]', async () => {
    const before = await open({ commandTimeoutMs: SHORT_MS });
    await restart(1);
    await withoutAnother(1);
    await until(async () => abstaining(await attempt(before)).includes(nodes.names(1)[0]!), { what: 'it is seen' });
    const later = await open({ commandTimeoutMs: SHORT_MS });
    expect(abstaining(await attempt(later))).toContain(nodes.names(1)[0]);
  });

  it('a Redlock node that restarted with the data of an earlier time does not vote [G91]', async () => {
    const backend = await open();
    const server = nodes.servers[1]!;
    await granted(backend, claimOn(freshKey(), LONG_MS));
    await server.command('SAVE');
    await server.kill();
    await server.restart();
    expect(await guard(1)).toMatch(/^1 /);
    await withoutAnother(1);
    await until(async () => abstaining(await attempt(backend)).includes(nodes.names(1)[0]!), { what: 'it is seen' });
  });

  it('a Redlock node that restarted with old counters votes for tokens of its own time [G98]', async () => {
    const server = nodes.servers[1]!;
    const run = (await guard(1)).split(' ')[2]!;
    const [seconds] = (await server.command('TIME')) as string[];
    const nowUs = Number(seconds) * 1_000_000;
    const epochUs = nowUs - 3_600_000_000;
    await server.command('SET', 'lock:admission', `${epochUs} 60000 ${run}`); // it restarted an hour ago
    const backend = await open({ ttlMs: 300 });
    await nodes.allVote(backend);
    const [old, young] = [claimOn(freshKey(), 300), claimOn(freshKey(), 300)];
    for (const node of [0, 1, 2]) {
      await nodes.setFence(node, old.key, epochUs - 60_000_000); // before it restarted
      await nodes.setFence(node, young.key, epochUs + 60_000_000); // since then
    }
    for (const claim of [old, young]) {
      await granted(backend, claim);
      await until(async () => (await nodes.owner(1, claim.key)) === claim.owner, { what: 'it has voted' });
      expect(await nodes.fence(1, claim.key)).toBeGreaterThan(nowUs);
    }
  });

  it('a Redlock node that was flushed notices it in the vote itself, keeps nothing of that vote, and does not vote [G92]', async () => {
    const backend = await open();
    const earlier = claimOn(freshKey(), LONG_MS);
    await granted(backend, earlier);
    await nodes.allGranted(earlier.key); // a vote that comes after the flush would notice it
    await nodes.servers[1]!.command('FLUSHALL');
    await withoutAnother(1);
    const claim = claimOn(freshKey(), LONG_MS);
    expect(abstaining(await acquireOn(backend, claim))).toContain(nodes.names(1)[0]);
    expect(await nodes.owner(1, claim.key)).toBeNull();
    expect(await nodes.fence(1, claim.key)).toBe(0);
    expect(abstaining(await attempt(backend))).toContain(nodes.names(1)[0]);
  });

  it('a Redlock node that restarted waits for the longest ttl that any node knows, not only for its own [G94]', async () => {
    const short = await open({ ttlMs: 100 });
    await granted(short, claimOn(freshKey(), 100));
    const other = await connected({ redlock: nodes.urls, ttlMs: LONG_MS }); // it uses a longer ttl
    await until(async () => (await guard(0)).split(' ')[1] === String(LONG_MS), {
      what: 'the node that stays has heard',
    });
    await other.close();
    await restart(1);
    await nodes.kill(2);
    const why = async () => {
      const outcome = await attempt(short, 100);
      return outcome.status === 'unavailable' ? outcome.causes.map(({ message }) => message).join() : '';
    };
    const waits = `${nodes.names(1)[0]}: it votes in`;
    const refusal = await until(async () => ((await why()).includes(waits) ? why() : undefined), {
      what: 'it is seen',
    });
    expect(refusal).toContain('the longest ttlMs is 120000');
  });

  it('a Redlock node that writes to disk before it answers votes at once after a restart, but not after it was flushed [G95]', async () => {
    const durable = await redlockNodes(3, ['--appendonly', 'yes', '--appendfsync', 'always']);
    for (const server of durable.servers) {
      await server.command('SET', 'lock:admission', '1 20 appendfsync always');
    }
    const backend = await open({ redlock: durable.urls, commandTimeoutMs: SHORT_MS });
    const claim = claimOn(freshKey(), LONG_MS);
    await granted(backend, claim);
    await durable.allGranted(claim.key); // two would suffice for the claim
    await durable.kill(1);
    await durable.servers[1]!.restart();
    await durable.kill(2);
    await until(async () => (await attempt(backend)).status === 'acquired', { what: 'it votes' });
    expect(await durable.owner(1, claim.key)).toBe(claim.owner);
    await durable.servers[1]!.command('FLUSHALL');
    expect(abstaining(await attempt(backend))).toContain(durable.names(1)[0]);
  });

  it('a Redlock node whose connection broke, but which did not restart, votes as before [G96]', async () => {
    const proxies = await Promise.all(nodes.servers.map(proxyTo));
    const backend = await open({ redlock: proxies.map(({ url }) => url) });
    for (const proxy of proxies) proxy.cut();
    await until(async () => (await attempt(backend)).status === 'acquired', { what: 'they are connected again' });
  });

  it('a Redlock node begins its first wait when a process first asks it, and continues it after that process has ended; with admission: false no wait begins [G1062]', async () => {
    for (const server of nodes.servers) await server.command('FLUSHALL');
    await granted(await open({ admission: false }), claimOn(freshKey(), LONG_MS));
    expect(await Promise.all([0, 1, 2].map(guard))).toEqual(['', '', '']);
    const first = await open();
    expect(abstaining(await attempt(first))).toEqual(nodes.names(0, 1, 2));
    await first.close();
    const since = async () => (await Promise.all([0, 1, 2].map(guard))).map((words) => words.split(' ')[0]);
    const before = await since();
    expect(abstaining(await attempt(await open()))).toEqual(nodes.names(0, 1, 2));
    expect(await since()).toEqual(before);
  });

  it('that was up for longer than the longest ttl, but for less than two seconds more, does not vote yet', async () => {
    const startedAt = performance.now();
    await restart(1);
    await nodes.servers[1]!.command('SET', 'lock:admission', '1 20 another');
    const backend = await open({ ttlMs: 700 });
    await withoutAnother(1);
    const since = async () => {
      const outcome = await attempt(backend, 700);
      const causes = outcome.status === 'unavailable' ? outcome.causes : [];
      return causes.map(({ problem }) => /votes in (\d+) ms/.exec(problem)?.[1]).find(Boolean);
    };
    const waitsMs = Number(await until(since, { what: 'it says for how long it does not vote' }));
    // By its uptime minus a second: so it waits as long as the ttl, with drift, and two more seconds.
    expect(waitsMs).toBeGreaterThanOrEqual(700 + 2_000 - (performance.now() - startedAt));
    expect(waitsMs).toBeLessThanOrEqual(707 + 2 + 2_000);
    await until(async () => (await attempt(backend, 700)).status === 'acquired', { what: 'it votes' });
  });
});

async function saysUptimeS(server: RedisServer): Promise<number> {
  return Number(/uptime_in_seconds:(\d+)/.exec(String(await server.command('INFO', 'server')))![1]);
}

it('the uptime of a server is never overestimated, though Redis reports one second after a moment [G97]', async () => {
  const early = async () => {
    await until(() => Date.now() % 1_000 > 600, { what: 'a second is nearly over' });
    const launchedAt = performance.now();
    const server = await redisServer();
    await until(async () => (await saysUptimeS(server)) === 1, { what: 'Redis says one second' });
    return performance.now() < launchedAt + 1_000 ? { server, launchedAt } : undefined;
  };
  const { server, launchedAt } = await until(early, { what: 'Redis says so within a second', timeoutMs: 60_000 });
  const { uptimeS } = await identify(portOf(clientOf(server)));
  expect(launchedAt + uptimeS * 1_000).toBeLessThanOrEqual(performance.now());
}, 70_000);
