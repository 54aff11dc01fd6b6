import type { RedisOptions } from 'ioredis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { acquireOn, claimOn, connected, extendOn, freshKey, granted, holderOn, releaseOn } from '../support/claims.js';
import { clientOf, redisServer } from '../support/stage.js';

const OPTIONS: [string, RedisOptions][] = [
  ['default options', {}],
  ['RESP2', { protocol: 2 }],
  ['RESP3', { protocol: 3 }],
  ['stringNumbers', { stringNumbers: true }],
  ['RESP2 and stringNumbers', { protocol: 2, stringNumbers: true }],
  ['a key prefix', { keyPrefix: 'app:' }],
  ['another database', { db: 3 }],
  ['auto-pipelining', { enableAutoPipelining: true }],
  ['no offline queue', { enableOfflineQueue: false }],
  ['a command timeout', { commandTimeout: 5_000 }],
  ['no ready check', { enableReadyCheck: false }],
  ['a lazy connection', { lazyConnect: true }],
];

describe('Clients', () => {
  it.each(OPTIONS)('of the application may have %s', async (_name, options) => {
    const client = clientOf(await redisServer(), options);
    const backend = await connected({ redis: client, commandTimeoutMs: 20_000 });
    onTestFinished(() => backend.close());
    const claim = claimOn(freshKey('options'));
    const { fencingToken } = await granted(backend, claim);
    expect(fencingToken).toBeGreaterThan(1e15);
    const contended = await acquireOn(backend, claimOn(claim.key));
    expect(contended).toEqual({
      status: 'contended',
      owner: claim.owner,
      remainingMs: expect.any(Number),
      queued: false,
    });
    expect(await extendOn(backend, { ...claim, ttlMs: 60_000 })).toMatchObject({ status: 'extended' });
    expect(await holderOn(backend, claim.key)).toEqual({
      owner: claim.owner,
      fencingToken,
      remainingMs: expect.any(Number),
      heldForMs: expect.any(Number),
    });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    expect(await backend.inspect(claim.key)).toBeUndefined();
    const again = claimOn(claim.key);
    expect((await granted(backend, again)).fencingToken).toBeGreaterThan(fencingToken);
    expect(await backend.forceRelease(claim.key)).toEqual({ from: [again.owner] });
    expect(await backend.forceRelease(claim.key)).toBeUndefined();

    const batch = Array.from({ length: 120 }, () => claimOn(freshKey('options')));
    await Promise.all(batch.map((each) => granted(backend, each)));
    const releases = await Promise.all(batch.map((each) => releaseOn(backend, each)));
    expect(releases).toEqual(Array(120).fill({ status: 'released' }));
  });
});
