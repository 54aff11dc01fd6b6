import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { until } from '../support/until.js';
import { claimOn, connected, extendOn, freshKey, granted, releaseOn } from '../support/claims.js';
import { RedlockNodes } from '../support/redlock-nodes.js';

describe('Extending a lock of a Redlock', () => {
  let nodes: RedlockNodes;
  let backend: LockBackend;

  beforeAll(async () => {
    nodes = await RedlockNodes.start(3);
  });
  beforeEach(async () => {
    backend = await connected({ redlock: nodes.urls, commandTimeoutMs: 900 });
  });
  afterEach(async () => {
    nodes.resume();
    await backend.close();
  });
  afterAll(() => nodes.stop());

  /** Granted by all three nodes. */
  const held = async () => {
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    await nodes.allGranted(claim.key);
    return claim;
  };

  it('an extension puts the key back on a node of a Redlock that lost it [G88]', async () => {
    const claim = await held();
    await nodes.drop(2, claim.key);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    await until(async () => (await nodes.owner(2, claim.key)) === claim.owner, { what: 'node 2 has it again' });
    expect(await nodes.servers[2]!.command('PTTL', `lock:{${claim.key}}`)).toBeGreaterThan(claim.ttlMs / 2);
    // With the token of its grant, and saying that others may wait.
    const value = `${claim.owner}@${claim.grant!.fencingToken}+`;
    expect(await nodes.servers[2]!.command('GET', `lock:{${claim.key}}`)).toBe(value);
    // From now on that node counts like any other: another one may fail.
    await nodes.drop(0, claim.key);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
  });

  it('an extension puts the key back only when a majority is known to have it, so that nobody else can have had the lock in between [G89]', async () => {
    const claim = await held();
    await nodes.drop(1, claim.key);
    nodes.pause(2);
    const unavailable = { status: 'unavailable', causes: [expect.objectContaining({ node: nodes.names(2)[0] })] };
    expect(await extendOn(backend, claim)).toEqual(unavailable);
    // Node 2 may have lost it too. If it were back on node 1 now, it would count the next time.
    expect(await nodes.owner(1, claim.key)).toBeNull();
    expect(await extendOn(backend, claim)).toEqual(unavailable);
    nodes.resume();
    await until(async () => (await extendOn(backend, claim)).status === 'extended', { what: 'node 2 still has it' });
    await until(async () => (await nodes.owner(1, claim.key)) === claim.owner, { what: 'node 1 has it again' });
    await releaseOn(backend, claim);
  });

  it.each([
    ['expired', 'has no more', null],
    ['stolen', 'gave to another', 'another'],
  ] as const)('finds a lock lost (%s) that a majority %s, and gives back the minority', async (reason, _, other) => {
    const claim = await held();
    for (const node of [0, 1]) {
      await nodes.drop(node, claim.key);
      if (other) await nodes.put(node, claim.key, other);
    }
    expect(await extendOn(backend, claim)).toEqual({ status: 'lost', reason });
    await until(async () => (await nodes.owner(2, claim.key)) === null, { what: 'the minority is given back' });
    await backend.close();
    expect(await nodes.owners(claim.key)).toEqual([other, other, null]);
  });

  it('does not put it back when it was released before a slow node says that it lost it', async () => {
    await backend.close();
    backend = await connected({ redlock: nodes.urls, commandTimeoutMs: 60_000 });
    const claim = await held();
    await nodes.drop(2, claim.key);
    nodes.pause(2);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    nodes.resume();
    await nodes.allVote(backend); // behind all that was sent on account of the late answer
    expect(await nodes.owners(claim.key)).toEqual([null, null, null]);
  });
});
