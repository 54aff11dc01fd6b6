import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { AcquireOutcome, LockBackend } from 'nest-redis-lock/testing';
import { LockUnavailableError, type RedisLockModuleOptions } from 'nest-redis-lock';
import { clientOf, redisServer } from '../support/stage.js';
import type { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { acquireOn, claimOn, connected, freshKey, granted, opened, releaseOn } from '../support/claims.js';
import { RedlockNodes } from '../support/redlock-nodes.js';

/** Longer than any test takes: whoever has to wait for it does not vote in the test. */
const LONG_MS = 120_000;
/** Time enough for a node that runs, on a busy machine. */
const NODE_MS = 10_000;
/** For calls that wait for a node that has just died. */
const SHORT_MS = 1_000;

async function uptime(server: RedisServer): Promise<number> {
  return Number(/uptime_in_seconds:(\d+)/.exec(String(await server.command('INFO', 'server')))![1]);
}

describe('A node of a Redlock', () => {
  let nodes: RedlockNodes;
  /** None of them has been up for longer. */
  let startedAt: number;
  const backends: LockBackend[] = [];

  beforeEach(async () => {
    startedAt = performance.now();
    nodes = await RedlockNodes.start(3);
  });
  afterEach(async () => {
    await Promise.all(backends.splice(0).map((backend) => backend.close()));
    await nodes.stop();
  });

  const open = async (options: Partial<RedisLockModuleOptions> = {}) => {
    const backend = await connected({
      redlock: nodes.urls,
      ttlMs: LONG_MS,
      commandTimeoutMs: NODE_MS,
      ...options,
    } as RedisLockModuleOptions);
    backends.push(backend);
    return backend;
  };
  const attempt = (backend: LockBackend, ttlMs = LONG_MS) => acquireOn(backend, claimOn(freshKey(), ttlMs));
  const abstaining = (outcome: AcquireOutcome) =>
    outcome.status === 'unavailable'
      ? outcome.causes
          .filter(({ problem }) => /^it votes in|^it has lost its data/.test(problem))
          .map(({ node }) => node)
      : [];
  /** Why a node did not vote; '' if it is not known to have refused that. */
  const problemOf = async (backend: LockBackend, node: number) => {
    const outcome = await attempt(backend, 700);
    const causes = outcome.status === 'unavailable' ? outcome.causes : [];
    return causes.find((cause) => cause.node === nodes.names(node)[0])?.problem ?? '';
  };
  const failing = (outcome: AcquireOutcome) =>
    outcome.status === 'unavailable' ? outcome.causes.map(({ node }) => node) : [];
  /** What the node remembers: since when, the longest ttl, and which start of it that was. */
  const guard = async (node: number) =>
    ((await nodes.servers[node]!.command('GET', 'lock:admission')) as string | null) ?? '';
  /** Leaves the rest of the nodes as few as that this one decides. */
  const withoutAnother = (node: number) => nodes.kill((node + 1) % 3);
  const restart = async (...which: number[]) => {
    for (const node of which) {
      await nodes.servers[node]!.kill();
      await nodes.servers[node]!.restart();
    }
  };

  it('that was never seen before does not vote at first, and says for how long and why', async () => {
    for (const server of nodes.servers) await server.command('FLUSHALL');
    const backend = await open();
    const outcome = await attempt(backend);
    expect(outcome).toMatchObject({ status: 'unavailable' });
    expect(abstaining(outcome)).toEqual(nodes.names(0, 1, 2));
    const { causes } = outcome as Extract<AcquireOutcome, { status: 'unavailable' }>;
    expect(causes[0]!.problem).toMatch(/^it votes in 1[12]\d{4} ms \(the longest ttlMs is 120000\)$/);
    const { message } = LockUnavailableError.from('acquired', 'x', causes);
    expect(message.match(/Wait: a Redlock node that is new to this library, has restarted/g)).toHaveLength(1);
    expect(message).toMatch(/set admission: false\.$/);
    expect(message).not.toContain('reachable');
  });

  it('is reported when the application starts, which goes on', async () => {
    for (const server of nodes.servers) await server.command('FLUSHALL');
    const backend = await opened({ redlock: nodes.urls, ttlMs: LONG_MS });
    backends.push(backend);
    expect((await backend.connect(15_000)).map(({ node }) => node)).toEqual(nodes.names(0, 1, 2));
  });

  it('votes once the longest ttl has passed, as the rest does', async () => {
    for (const server of nodes.servers) await server.command('FLUSHALL');
    const backend = await open({ ttlMs: 700 });
    expect(await attempt(backend, 700)).toMatchObject({ status: 'unavailable' });
    await until(async () => (await attempt(backend, 700)).status === 'acquired', { what: 'they vote' });
  });

  it('that is dead is told to be so, with what became of the connection, not as one that may have restarted', async () => {
    const opened = [
      await open({ commandTimeoutMs: SHORT_MS }),
      await open({ admission: false, commandTimeoutMs: SHORT_MS }),
    ];
    await nodes.kill(1);
    await nodes.kill(2);
    for (const backend of opened) {
      const told = await until(
        async () => {
          const outcome = await attempt(backend);
          const messages = outcome.status === 'unavailable' ? outcome.causes.map(({ message }) => message) : [];
          return messages.every((message) => message.includes('ECONNREFUSED')) ? messages : undefined;
        },
        { what: 'the client has tried to connect again' },
      );
      const dead = nodes.names(1, 2).map((name) => `${name}: not connected \\(\\w+\\): connect ECONNREFUSED ${name}`);
      expect(told).toEqual(dead.map((message) => expect.stringMatching(new RegExp(`^${message}$`))));
    }
  });

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

  it('that was up for longer than the longest ttl before anybody asked votes at once', async () => {
    const server = await redisServer();
    await server.command('SET', 'lock:admission', '1 20 another');
    await until(async () => (await uptime(server)) >= 4, { what: 'it has been up for four seconds' });
    const backend = await open({ redlock: [nodes.urls[0]!, server.url, nodes.urls[2]!], ttlMs: 900 });
    await withoutAnother(1);
    expect(await attempt(backend, 900)).toMatchObject({ status: 'acquired' });
  });

  it('that was up for longer than the longest ttl, but for less than two seconds more, does not vote yet', async () => {
    await nodes.servers[1]!.command('SET', 'lock:admission', '1 20 another');
    const backend = await open({ ttlMs: 700 });
    await withoutAnother(1);
    const [, since] = await until(async () => /votes in (\d+) ms/.exec(await problemOf(backend, 1)), {
      what: 'it says for how long it does not vote',
    });
    // By its uptime, less a second: so it waits for as long as the ttl, with drift, and for two seconds.
    expect(Number(since)).toBeGreaterThanOrEqual(700 + 2_000 - (performance.now() - startedAt));
    expect(Number(since)).toBeLessThanOrEqual(707 + 2 + 2_000);
    await until(async () => (await attempt(backend, 700)).status === 'acquired', { what: 'it votes' });
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

  it('that was flushed stays without a vote for those who did not see it, when others have let it wait already', async () => {
    const [first, second] = [await open(), await open()];
    await nodes.servers[1]!.command('FLUSHALL');
    await withoutAnother(1);
    expect(abstaining(await attempt(first))).toContain(nodes.names(1)[0]);
    await until(() => guard(1), { what: 'the node knows since when it waits' });
    expect(abstaining(await attempt(second))).toContain(nodes.names(1)[0]);
  });

  it('a Redlock node that restarted waits for the longest ttl that any node has heard of, not only for its own [G94]', async () => {
    const short = await open({ ttlMs: 100 });
    await granted(short, claimOn(freshKey(), 100));
    const other = await connected({ redlock: nodes.urls, ttlMs: LONG_MS }); // it uses a longer one
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
    const durable = await RedlockNodes.start(3, ['--appendonly', 'yes', '--appendfsync', 'always']);
    onTestFinished(() => durable.stop());
    for (const server of durable.servers) {
      await server.command('SET', 'lock:admission', '1 20 appendfsync always');
    }
    const backend = await open({ redlock: durable.urls, commandTimeoutMs: SHORT_MS });
    const claim = claimOn(freshKey(), LONG_MS);
    await granted(backend, claim);
    await durable.allGranted(claim.key); // two would do for the claim
    await durable.kill(1);
    await durable.servers[1]!.restart();
    await durable.kill(2);
    await until(async () => (await attempt(backend)).status === 'acquired', { what: 'it votes' });
    expect(await durable.owner(1, claim.key)).toBe(claim.owner);
    await durable.servers[1]!.command('FLUSHALL');
    expect(abstaining(await attempt(backend))).toContain(durable.names(1)[0]);
  });

  it('that would write to disk before it answers, but writes nothing, is not taken for one that does', async () => {
    const server = nodes.servers[1]!;
    await server.command('CONFIG', 'SET', 'appendfsync', 'always');
    await server.command('SET', 'lock:admission', '1 20 appendfsync always');
    const backend = await open();
    await withoutAnother(1);
    expect(abstaining(await attempt(backend))).toEqual(nodes.names(1));
  });

  it('a Redlock node whose connection broke, but which did not restart, votes as before [G96]', async () => {
    const proxies = await Promise.all(nodes.servers.map(({ port }) => TcpProxy.start(port)));
    onTestFinished(async () => void (await Promise.all(proxies.map((proxy) => proxy.stop()))));
    const backend = await open({ redlock: proxies.map(({ url }) => url) });
    for (const proxy of proxies) proxy.cut();
    await until(async () => (await attempt(backend)).status === 'acquired', { what: 'they are connected again' });
  });

  it('does not vote by an answer to what a client sent again after the restart', async () => {
    const proxy = await TcpProxy.start(nodes.servers[1]!.port);
    onTestFinished(() => proxy.stop());
    const clients = [nodes.servers[0]!, proxy, nodes.servers[2]!].map((server) => clientOf(server));
    const backend = await open({ redlock: clients, commandTimeoutMs: 20_000 });
    const claim = claimOn(freshKey(), LONG_MS);
    await granted(backend, claim);
    await until(() => nodes.owner(1, claim.key), { what: 'the slow one has voted, too' });
    await releaseOn(backend, claim);
    await nodes.allFree(claim.key);
    const counter = await nodes.fence(1, claim.key);
    await nodes.servers[1]!.command('SAVE'); // with its counter, so that the node sees no reason to refuse
    await withoutAnother(1);
    await until(() => clients[2]!.status !== 'ready', { what: 'the client knows that its node is gone' });
    proxy.hold();
    const acquiring = acquireOn(backend, claim);
    await until(() => nodes.owner(0, claim.key), { what: 'the vote of the other node' });
    await restart(1);
    proxy.cut();
    proxy.release();
    expect(failing(await acquiring)).toEqual(
      nodes.names(1, 2).map((name, at) => (at === 0 ? `127.0.0.1:${proxy.port}` : name)),
    );
    await until(async () => (await nodes.fence(1, claim.key)) > counter, { what: 'it was sent again, and granted' });
    await until(async () => (await nodes.owner(1, claim.key)) === null, { what: 'it is given back' });
  });

  it('votes at once with admission: false', async () => {
    for (const server of nodes.servers) await server.command('FLUSHALL');
    const backend = await open({ admission: false });
    expect(await attempt(backend)).toMatchObject({ status: 'acquired' });
    expect(await nodes.servers[0]!.command('EXISTS', 'lock:admission')).toBe(0);
  });
});
