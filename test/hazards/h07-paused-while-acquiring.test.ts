import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { tryLock } from '../support/naive.js';
import { votedOn } from '../support/stored.js';
import { blockEventLoop, clientOf, freeOn, proxyTo, redisServer, redisServers } from '../support/stage.js';

const TTL_MS = 400;

/** What was asked for has been written to the sockets. */
const sent = () => new Promise(setImmediate);

describe('H7: the client is paused while it acquires, and reads the answers after the ttl', () => {
  it('a naive lock counts its lease from the answer, so that a client paused while acquiring holds what another has', async () => {
    const server = await redisServer();
    const [a, b] = [clientOf(server), clientOf(server)];
    await Promise.all([a.ping(), b.ping()]);

    const ttlMs = 1_000;
    const locking = tryLock(a, 'lock', 'A', ttlMs);
    await sent();
    blockEventLoop(ttlMs + 300);
    expect(await locking).toBe(true);
    const heldUntil = performance.now() + ttlMs;
    await until(() => tryLock(b, 'lock', 'B', ttlMs), { what: 'B has it' }); // at once, unless Redis was paused, too
    expect(performance.now()).toBeLessThan(heldUntil);
  });

  it('this library refuses a lock whose answers are read after the ttl, and undoes it on every node [G155]', async () => {
    const nodes = await redisServers(3);
    const slowWay = await proxyTo(nodes[2]!);
    const redlock = [nodes[0]!.url, nodes[1]!.url, slowWay.url];
    const locks = await openLocks({ redlock, commandTimeoutMs: 10_000 });
    await locks.withLock('scripts are loaded', () => {});
    await votedOn(nodes, 'scripts are loaded');
    await freeOn(nodes, 'scripts are loaded');
    await Promise.all(nodes.map((node) => node.resetCalls()));

    slowWay.hold();
    const acquiring = locks.acquire('key', { ttlMs: TTL_MS, waitMs: 0 });
    const refused = expect(acquiring).rejects.toThrow(/its answer took \d+ ms, but the lease is only 400 ms long/);
    await sent();
    blockEventLoop(2 * TTL_MS);
    await refused;

    // The third vote is granted now, with all of its ttl before it.
    slowWay.release();
    await until(async () => (await nodes[2]!.calls()).del === 1, { what: 'the late vote is taken back' });
    await freeOn(nodes, 'key');
    await until(() => locks.tryAcquire('key'), { what: 'it can be had' });
  });
});
