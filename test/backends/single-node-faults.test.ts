import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { ACQUIRE, EXTEND, RELEASE } from '../../lib/stores/redis/scripts/lua.js';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  acquireOn,
  claimOn,
  connected,
  extendOn,
  freshKey,
  granted,
  now,
  opened,
  placeOf,
  releaseOn,
} from '../support/claims.js';
import { COUNTER, counterOn, ownerOn } from '../support/stored.js';

describe('One Redis server', () => {
  let server: RedisServer;
  let proxy: TcpProxy;
  let backend: LockBackend;

  beforeAll(async () => {
    server = await RedisServer.start();
    proxy = await TcpProxy.start(server.port);
  });
  beforeEach(async () => {
    backend = await connected({ redis: proxy.url, commandTimeoutMs: 800 });
    const warmUp = claimOn(freshKey()); // the scripts are known to the server
    await granted(backend, warmUp);
    await extendOn(backend, warmUp);
    await releaseOn(backend, warmUp);
  });
  afterEach(async () => {
    server.resume();
    proxy.release();
    proxy.passReplies();
    await proxy.accept();
    await backend.close();
  });
  afterAll(async () => {
    await proxy.stop();
    await server.stop();
  });

  const owner = (key: string) => ownerOn(server, key);
  const valueOf = async ({ key }: { key: string }) => String(await server.command('GET', `lock:{${key}}`));
  const free = (key: string) => until(async () => (await owner(key)) === null, { what: 'the lock is free' });
  const atProxy = () => [expect.objectContaining({ node: `127.0.0.1:${proxy.port}` })];

  describe('whose reply is lost with the connection', () => {
    /** Time enough to connect again, on a busy machine. */
    beforeEach(async () => {
      await backend.close();
      backend = await connected({ redis: proxy.url, commandTimeoutMs: 10_000 });
    });

    it('an attempt whose reply is lost with the connection has been granted the lock, and finds that out by itself [G52]', async () => {
      const claim = claimOn(freshKey());
      const cut = proxy.cutAfterRequest(ACQUIRE.sha);
      const before = now();
      const outcome = await granted(backend, claim);
      await cut;
      expect(await owner(claim.key)).toBe(claim.owner);
      expect(outcome.sentAt).toBeGreaterThan(before);
      // One grant, one token: the command ran twice.
      expect(await counterOn(server)).toBe(outcome.fencingToken);
      expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
      expect(await owner(claim.key)).toBeNull();
    });

    it('has refused the lock, and the attempt learns who holds it', async () => {
      const holder = claimOn(freshKey());
      await granted(backend, holder);
      const cut = proxy.cutAfterRequest(ACQUIRE.sha);
      expect(await acquireOn(backend, claimOn(holder.key))).toMatchObject({ status: 'contended', owner: holder.owner });
      await cut;
      expect(await releaseOn(backend, holder)).toEqual({ status: 'released' });
    });

    it('has released the lock, and says so when it is asked again', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      const cut = proxy.cutAfterRequest(RELEASE.sha);
      expect(await releaseOn(backend, claim)).toEqual({ status: 'unavailable', causes: atProxy() });
      await cut;
      expect(await owner(claim.key)).toBeNull();
    });

    it('has extended the lock, and extends it again', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      const cut = proxy.cutAfterRequest(EXTEND.sha);
      expect(await extendOn(backend, claim)).toEqual({ status: 'unavailable', causes: atProxy() });
      await cut;
      await until(async () => (await extendOn(backend, claim)).status === 'extended', {
        what: 'it is connected again',
      });
      await releaseOn(backend, claim);
    });
  });

  it('that refuses two locks for different reasons is quoted on each', async () => {
    const [free, list] = [claimOn(freshKey()), claimOn(freshKey())];
    await server.command('SET', COUNTER, 9e15);
    onTestFinished(async () => void (await server.command('DEL', COUNTER)));
    await server.command('RPUSH', `lock:{${list.key}}`, 'a list');
    const refused = (problem: RegExp) => ({
      status: 'unavailable',
      causes: [expect.objectContaining({ problem: expect.stringMatching(problem) })],
    });
    for (let round = 0; round < 2; round++) {
      expect(await acquireOn(backend, free)).toEqual(refused(/the fencing counter lock:fence is out of range/));
      expect(await acquireOn(backend, list)).toEqual(refused(/WRONGTYPE/));
    }
  });

  it("whose key was replaced by another program's data has lost the lock", async () => {
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    await server.command('DEL', `lock:{${claim.key}}`);
    await server.command('LPUSH', `lock:{${claim.key}}`, 'data');
    expect(await extendOn(backend, claim)).toEqual({ status: 'lost', reason: 'stolen' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'gone' });
    const causes = [expect.objectContaining({ problem: expect.stringMatching(/WRONGTYPE/) })];
    expect(await acquireOn(backend, claimOn(claim.key))).toEqual({ status: 'unavailable', causes });
    await expect(backend.inspect(claim.key)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', causes });
    expect(await backend.forceRelease(claim.key)).toEqual({ from: [''] });
  });

  it('that cannot be reached any more leaves no orphan of an attempt whose answer was lost', async () => {
    const claim = claimOn(freshKey());
    proxy.dropReplies();
    const attempt = acquireOn(backend, claim);
    await until(() => owner(claim.key), { what: 'it was granted' });
    proxy.refuse();
    proxy.cut();
    expect(await attempt).toEqual({ status: 'unavailable', causes: atProxy() });
    expect(await owner(claim.key)).toBe(claim.owner);
    proxy.passReplies();
    await proxy.accept();
    await free(claim.key);
  });

  it('a server that comes back gets the releases that it is owed before anything else [G67]', async () => {
    const [given, kept] = [claimOn(freshKey()), claimOn(freshKey())];
    for (const claim of [given, kept]) await granted(backend, claim);
    proxy.refuse();
    proxy.cut();
    expect(await releaseOn(backend, given)).toMatchObject({ status: 'unavailable' });
    const releasedAt = now();
    await until(() => now() > releasedAt + 750, { what: 'the pauses between the tries have grown' });
    await proxy.accept();
    await until(async () => (await extendOn(backend, kept)).status === 'extended', { what: 'it is connected again' });
    expect(await owner(given.key)).toBeNull();
    await releaseOn(backend, kept);
  });

  it.each([
    ['comes back', () => [proxy.refuse(), proxy.cut()], () => proxy.accept()],
    ['answers again', () => proxy.dropReplies(), async () => proxy.passReplies()],
  ])('a server that %s is said to be reachable [G1001]', async (_, away, back) => {
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    away();
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'unavailable' });
    let said = 0;
    backend.onReachable = () => void said++;
    await back();
    await until(() => said > 0, { what: 'it is said' });
    await releaseOn(backend, claim);
  });

  it('a server that comes back after a lock has ended gets no release of that lock, but gets that of a lock that was to last longer [G68]', async () => {
    const [short, long, shortened] = [claimOn(freshKey(), 200), claimOn(freshKey()), claimOn(freshKey())];
    for (const claim of [short, long, shortened]) await granted(backend, claim);
    Object.assign(shortened, { ttlMs: 200, longestTtlMs: 20_000 }); // an extension to less that was not answered
    proxy.refuse();
    proxy.cut();
    for (const claim of [short, long, shortened]) {
      expect(await releaseOn(backend, claim)).toEqual({ status: 'unavailable', causes: atProxy() });
    }
    const releasedAt = now();
    await until(async () => now() > releasedAt + 210, { what: 'the lease is over' });
    await server.resetCalls();
    await proxy.accept();
    await until(async () => (await server.calls()).del === 2, { what: 'what is left is released' });
    expect((await server.calls()).get).toBe(2); // each release reads its lock
    for (const claim of [long, shortened]) expect(await owner(claim.key)).toBeNull();
  });

  it('a lock that is to be kept while its server cannot be reached is kept for what is left, and released if nothing is [G333]', async () => {
    const [kept, over] = [claimOn(freshKey(), 60_000), claimOn(freshKey(), 60_000)];
    for (const claim of [kept, over]) await granted(backend, claim);
    await server.resetCalls();
    proxy.refuse();
    proxy.cut();
    for (const [claim, forMs] of [[kept, 50_000] as const, [over, 200] as const]) {
      expect(await releaseOn(backend, claim, forMs)).toEqual({ status: 'unavailable', causes: atProxy() });
    }
    const releasedAt = now();
    await until(async () => now() > releasedAt + 210, { what: 'one of them need not be kept any more' });
    await proxy.accept();
    await until(async () => (await server.calls()).del === 1, { what: 'that is released' });
    expect(await owner(over.key)).toBeNull();
    await until(async () => (await valueOf(kept)).endsWith('='), { what: 'the other is kept' });
    expect(await server.command('PTTL', `lock:{${kept.key}}`)).toBeLessThanOrEqual(50_000 - 210);
    await backend.forceRelease(kept.key);
  });

  it('a lock that a server which hung keeps too late is not kept for longer', async () => {
    const claim = claimOn(freshKey(), 60_000);
    await granted(backend, claim);
    server.pause();
    const askedAt = now();
    expect(await releaseOn(backend, claim, 50_000)).toEqual({ status: 'unavailable', causes: atProxy() });
    await until(() => now() > askedAt + 800, { what: 'it would be kept for much longer' });
    server.resume();
    const leftMs = async () => Number(await server.command('PTTL', `lock:{${claim.key}}`));
    const isCorrected = async () => (await leftMs()) < askedAt + 50_000 + 700 - now();
    await until(isCorrected, { what: 'it is kept for what is left' });
    expect(await valueOf(claim)).toMatch(/=$/);
    await backend.forceRelease(claim.key);
  });

  it('an attempt that the server runs only when its lease would be over is undone [G69]', async () => {
    const claim = claimOn(freshKey(), 500);
    const { del = 0 } = await server.calls();
    server.pause();
    expect(await acquireOn(backend, claim)).toEqual({ status: 'unavailable', causes: atProxy() });
    const givenUpAt = now();
    await until(async () => now() > givenUpAt + 510, { what: 'its lease would be over' });
    server.resume();
    await until(async () => (await server.calls()).del === del + 1, { what: 'it is undone' });
  });

  it('that cannot be reached when a place in a queue is given up has it left later', async () => {
    const holder = claimOn(freshKey());
    await granted(backend, holder);
    const claim = claimOn(holder.key);
    const [place, queue] = [placeOf(claim.owner), `lock:{${claim.key}}:queue`];
    expect(await acquireOn(backend, claim, place)).toMatchObject({ queued: true });
    expect(await server.command('PERSIST', queue)).toBe(1); // or its ttl would end it
    proxy.refuse();
    proxy.cut();
    backend.waitQueue!.leave(claim.key, place);
    await proxy.accept();
    await until(async () => (await server.command('EXISTS', queue)) === 0, { what: 'the place is left' });
    expect(await owner(claim.key)).toBe(holder.owner);
    expect(await releaseOn(backend, holder)).toEqual({ status: 'released' });
  });

  it('that comes back is asked to have a place left however long it was away: others may have kept the queue', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const holder = claimOn(freshKey());
    await granted(backend, holder);
    const claim = claimOn(holder.key);
    const place = placeOf(claim.owner);
    expect(await acquireOn(backend, claim, place)).toMatchObject({ queued: true });
    const status = async () => (await extendOn(backend, holder)).status;
    proxy.refuse();
    proxy.cut();
    await until(async () => (await status()) === 'unavailable', { what: 'the connection is known to be broken' });
    backend.waitQueue!.leave(claim.key, place);
    await new Promise(setImmediate); // it has failed
    vi.advanceTimersByTime(3_600_000);
    await server.resetCalls();
    await proxy.accept();
    await until(async () => (await server.calls()).zrem === 1, { what: 'the place is left' });
  });

  it('that hangs while a lock is released gets the release later, also when the backend is closed meanwhile', async () => {
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    server.pause();
    expect(await releaseOn(backend, claim)).toEqual({ status: 'unavailable', causes: atProxy() });
    await backend.close();
    server.resume();
    await free(claim.key);
  });

  it('that is gone is unavailable for every operation, in bounded time', async () => {
    const claim = claimOn(freshKey());
    proxy.refuse();
    proxy.cut();
    const unavailable = { status: 'unavailable', causes: atProxy() };
    const start = now();
    const attempt = await acquireOn(backend, claim);
    expect(now() - start).toBeLessThan(backend.attemptTimeoutMs() + 8_000); // a busy machine
    expect(attempt).toEqual(unavailable);
    expect(await extendOn(backend, claim)).toEqual(unavailable);
    await expect(backend.inspect(claim.key)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', causes: atProxy() });
    await expect(backend.forceRelease(claim.key)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: claim.key });
    await expect(backend.connect(50)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', causes: atProxy() });
    await proxy.accept();
    expect(await backend.connect(10_000)).toEqual([]);
    await granted(backend, claim);
    await releaseOn(backend, claim);
  });

  it('that comes back within the time limit is waited for', async () => {
    await backend.close();
    backend = await connected({ redis: proxy.url, commandTimeoutMs: 15_000 });
    proxy.refuse();
    proxy.cut();
    const claim = claimOn(freshKey());
    const attempt = granted(backend, claim);
    await until(async () => JSON.stringify(await extendOn(backend, claim)).includes('not connected'), {
      what: 'the connection is known to be broken',
    });
    await proxy.accept();
    await attempt;
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
  });

  it('that was not there at the start is used once it is', async () => {
    await backend.close();
    proxy.refuse();
    backend = await opened({ redis: proxy.url, commandTimeoutMs: 100 });
    expect(await acquireOn(backend, claimOn(freshKey()))).toEqual({ status: 'unavailable', causes: atProxy() });
    await proxy.accept();
    const claim = claimOn(freshKey());
    await until(async () => (await acquireOn(backend, claim)).status === 'acquired', { what: 'it is connected' });
    await releaseOn(backend, claim);
  });

  it('a server that restarts empty mints larger fencing tokens than before [G15]', async () => {
    const claim = claimOn(freshKey());
    const tokens = [];
    for (let round = 0; round < 100; round++) {
      tokens.push((await granted(backend, claim)).fencingToken);
      await releaseOn(backend, claim);
    }
    await server.restart();
    expect(await server.keys()).toEqual([]);
    await backend.connect(10_000);
    const next = await until(
      async () => {
        const outcome = await acquireOn(backend, claim);
        return outcome.status === 'acquired' ? outcome : undefined;
      },
      { what: 'it serves again' },
    );
    tokens.push(next.grant.fencingToken!);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
    await releaseOn(backend, claim);
  });
});
