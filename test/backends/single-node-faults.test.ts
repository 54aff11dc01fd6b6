import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { ACQUIRE } from '../../lib/stores/redis/scripts/lua.js';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { acquireOn, claimOn, connected, extendOn, freshKey, granted, now, releaseOn } from '../support/claims.js';
import { counterOn, ownerOn } from '../support/stored.js';

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
    const warmUp = claimOn(freshKey()); // the server knows the scripts
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
  const atProxy = () => [expect.objectContaining({ node: `127.0.0.1:${proxy.port}` })];

  describe('whose reply is lost with the connection', () => {
    /** Enough time to reconnect, on a busy machine. */
    beforeEach(async () => {
      await backend.close();
      backend = await connected({ redis: proxy.url, commandTimeoutMs: 10_000 });
    });

    it('an attempt whose reply is lost with the connection has been granted the lock, and finds this out by itself [G52]', async () => {
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
  ])('a server that %s is reported as reachable [G1001]', async (_, away, back) => {
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    away();
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'unavailable' });
    let said = 0;
    backend.onReachable = () => void said++;
    await back();
    await until(() => said > 0, { what: 'it is reported' });
    await releaseOn(backend, claim);
  });

  it('a server that comes back after a lock has ended gets no release of that lock, but the release of a lock that lasts longer [G68]', async () => {
    const [short, long, shortened] = [claimOn(freshKey(), 200), claimOn(freshKey()), claimOn(freshKey())];
    for (const claim of [short, long, shortened]) await granted(backend, claim);
    Object.assign(shortened, { ttlMs: 200, longestTtlMs: 20_000 }); // an extension to a shorter time that was not answered
    proxy.refuse();
    proxy.cut();
    for (const claim of [short, long, shortened]) {
      expect(await releaseOn(backend, claim)).toMatchObject({ status: 'unavailable', causes: atProxy() });
    }
    const releasedAt = now();
    await until(async () => now() > releasedAt + 210, { what: 'the lease is over' });
    await server.resetCalls();
    await proxy.accept();
    await until(async () => (await server.calls()).del === 2, { what: 'what is left is released' });
    expect((await server.calls()).get).toBe(2); // each release reads its lock
    for (const claim of [long, shortened]) expect(await owner(claim.key)).toBeNull();
  });

  it('a lock with holdMs whose server cannot be reached is kept for the rest of that time, and released if none is left [G333]', async () => {
    const [kept, over] = [claimOn(freshKey(), 60_000), claimOn(freshKey(), 60_000)];
    for (const claim of [kept, over]) await granted(backend, claim);
    await server.resetCalls();
    proxy.refuse();
    proxy.cut();
    for (const [claim, forMs] of [[kept, 50_000] as const, [over, 200] as const]) {
      expect(await releaseOn(backend, claim, forMs)).toMatchObject({ status: 'unavailable', causes: atProxy() });
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

  it('an attempt that the server runs only when its lease would have ended is undone [G69]', async () => {
    const claim = claimOn(freshKey(), 500);
    const { del = 0 } = await server.calls();
    server.pause();
    expect(await acquireOn(backend, claim)).toEqual({ status: 'unavailable', causes: atProxy() });
    const givenUpAt = now();
    await until(async () => now() > givenUpAt + 510, { what: 'its lease would be over' });
    server.resume();
    await until(async () => (await server.calls()).del === del + 1, { what: 'it is undone' });
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
