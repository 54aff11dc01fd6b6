import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { until } from '../support/until.js';
import { acquireOn, claimOn, connected, extendOn, freshKey, granted, holderOn, releaseOn } from '../support/claims.js';
import { RedlockNodes } from '../support/redlock-nodes.js';

/** Longer than a test may take: whoever waits for a node that hangs does not end in time. */
const NEVER_MS = 60_000;
/** Time enough for a node that runs, on a busy machine. */
const SHORT_MS = 900;

describe('A Redlock of 5', () => {
  let nodes: RedlockNodes;
  const backends: LockBackend[] = [];

  beforeAll(async () => {
    nodes = await RedlockNodes.start(5);
  });
  afterEach(async () => {
    nodes.resume();
    await Promise.all(backends.splice(0).map((backend) => backend.close()));
  });
  afterAll(() => nodes.stop());

  const open = async (commandTimeoutMs: number): Promise<LockBackend> => {
    const backend = await connected({ redlock: nodes.urls, commandTimeoutMs });
    backends.push(backend);
    return backend;
  };

  it('a Redlock decides as soon as a majority granted, without waiting for nodes that hang [G82]', async () => {
    const backend = await open(NEVER_MS);
    nodes.pause(1, 3);
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    expect(await acquireOn(backend, claimOn(claim.key))).toMatchObject({ status: 'contended', owner: claim.owner });
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    nodes.resume();
    await until(async () => (await nodes.fence(1, claim.key)) && (await nodes.fence(3, claim.key)), {
      what: 'the nodes have worked off what was sent',
    });
    await nodes.allFree(claim.key);
  });

  it('a Redlock of five acquires, extends, inspects and releases while two nodes hang [G83]', async () => {
    const backend = await open(SHORT_MS);
    nodes.pause(0, 1);
    for (let round = 0; round < 3; round++) {
      const claim = claimOn(freshKey());
      const { fencingToken } = await granted(backend, claim);
      expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
      expect(await holderOn(backend, claim.key)).toMatchObject({ owner: claim.owner, fencingToken });
      expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
      expect(await backend.inspect(claim.key)).toBeUndefined();
    }
  });

  it('a Redlock is unavailable when a majority hangs, and the error names each of those nodes [G84]', async () => {
    const backend = await open(SHORT_MS);
    nodes.pause(0, 2, 4);
    const claim = claimOn(freshKey());
    const expected = {
      status: 'unavailable',
      causes: nodes.names(0, 2, 4).map((node) => expect.objectContaining({ node })),
    };
    expect(await acquireOn(backend, claim)).toEqual(expected);
    expect(await extendOn(backend, claim)).toEqual(expected);
    expect(await releaseOn(backend, claim)).toEqual(expected);
    for (const operation of [() => backend.inspect(claim.key), () => backend.forceRelease(claim.key)]) {
      const error = await operation().catch((reason: Error) => reason);
      expect(error).toMatchObject({ code: 'LOCK_UNAVAILABLE', key: claim.key, causes: expected.causes });
      for (const name of nodes.names(0, 2, 4)) expect((error as Error).message).toContain(name);
    }
  });

  it('a Redlock with a split vote names no holder, and the attempt keeps none of its votes [G85]', async () => {
    const backend = await open(NEVER_MS);
    const key = freshKey();
    for (const node of [0, 1]) await nodes.put(node, key, 'one');
    await nodes.put(2, key, 'two');
    expect(await acquireOn(backend, claimOn(key))).toEqual({ status: 'contended', queued: false });
    await until(async () => (await nodes.fence(3, key)) && (await nodes.fence(4, key)), { what: 'two nodes granted' });
    await until(async () => (await nodes.owner(3, key)) === null && (await nodes.owner(4, key)) === null, {
      what: 'both votes are given back',
    });
    expect(await nodes.owners(key)).toEqual(['one', 'one', 'two', null, null]);
    expect(await backend.inspect(key)).toBeUndefined();
  });

  it('one of several attempts that split the votes of a Redlock wins soon [G87]', async () => {
    const contenders = await Promise.all(Array.from({ length: 3 }, () => open(NEVER_MS)));
    const key = freshKey();
    const winners: string[] = [];
    await Promise.all(
      contenders.map(async (backend) => {
        const claim = claimOn(key);
        await until(async () => (await acquireOn(backend, { ...claim })).status === 'acquired', {
          what: 'it is granted',
        });
        winners.push(claim.owner);
        expect(await holderOn(backend, key)).toMatchObject({ owner: claim.owner });
        expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
      }),
    );
    expect(new Set(winners).size).toBe(3);
    await nodes.allFree(key);
  });

  it('an attempt that got no majority in time gives back all its votes, the late ones too [G86]', async () => {
    const backend = await open(SHORT_MS);
    const key = freshKey();
    nodes.pause(0, 1, 2);
    expect(await acquireOn(backend, claimOn(key))).toMatchObject({ status: 'unavailable' });
    nodes.resume();
    await until(async () => (await Promise.all([0, 1, 2].map((node) => nodes.fence(node, key)))).every(Boolean), {
      what: 'the late nodes have granted',
    });
    await nodes.allFree(key);
  });
});
