import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { tokenText } from '../../lib/stores/redis/node/lock-keys.js';
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
    // From now on that node counts like any other: another one may fail.
    await nodes.drop(0, claim.key);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
  });

  it('a lock that an extension puts back on a node of a Redlock has the token of its grant there, and says that others may wait', async () => {
    const claim = claimOn(freshKey());
    const { fencingToken } = await granted(backend, claim);
    await nodes.allGranted(claim.key);
    await nodes.drop(2, claim.key);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    const value = () => nodes.servers[2]!.command('GET', `lock:{${claim.key}}`);
    expect(await until(value, { what: 'node 2 has it again' })).toBe(`${claim.owner}@${tokenText(fencingToken)}+`);
    await releaseOn(backend, claim);
  });

  it('an extension does not put a lock back on a node of a Redlock when the grant has no token', async () => {
    const claim = await held();
    await nodes.drop(2, claim.key);
    const { key, owner, ttlMs } = claim;
    expect(await extendOn(backend, { key, owner, ttlMs })).toMatchObject({ status: 'extended' });
    await nodes.allVote(backend); // behind all that was sent on account of the answers
    expect(await nodes.owners(key)).toEqual([owner, owner, null]);
    await releaseOn(backend, claim);
  });

  it('leaves a node alone on which another owns it', async () => {
    const claim = await held();
    await nodes.put(1, claim.key, 'another');
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    await backend.close();
    expect(await nodes.owners(claim.key)).toEqual([null, 'another', null]);
  });

  it('finds a lock lost that a majority has no more, and takes back what it put back', async () => {
    const claim = await held();
    await nodes.drop(0, claim.key);
    await nodes.drop(1, claim.key);
    expect(await extendOn(backend, claim)).toEqual({ status: 'lost', reason: 'expired' });
    await nodes.allFree(claim.key);
    expect(await extendOn(backend, claim)).toEqual({ status: 'lost', reason: 'expired' });
  });

  it('finds a lock stolen that a majority gave to another', async () => {
    const claim = await held();
    await nodes.put(0, claim.key, 'another');
    await nodes.put(1, claim.key, 'another');
    expect(await extendOn(backend, claim)).toEqual({ status: 'lost', reason: 'stolen' });
    await until(async () => (await nodes.owner(2, claim.key)) === null, { what: 'the minority is given back' });
    expect(await nodes.owners(claim.key)).toEqual(['another', 'another', null]);
  });

  it('does not call a lock lost while a majority may still have it', async () => {
    const claim = await held();
    nodes.pause(1, 2);
    expect(await extendOn(backend, claim)).toEqual({
      status: 'unavailable',
      causes: nodes.names(1, 2).map((node) => expect.objectContaining({ node })),
    });
    nodes.resume();
    await until(async () => (await extendOn(backend, claim)).status === 'extended', { what: 'it is extended' });
    await releaseOn(backend, claim);
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

  it('finds a lock lost when the node that did not answer has lost it too', async () => {
    const claim = await held();
    await nodes.drop(1, claim.key);
    await nodes.drop(2, claim.key);
    nodes.pause(2);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'unavailable' });
    nodes.resume();
    const outcome = await until(
      async () => {
        const extension = await extendOn(backend, claim);
        return extension.status === 'unavailable' ? undefined : extension;
      },
      { what: 'node 2 answers' },
    );
    expect(outcome).toEqual({ status: 'lost', reason: 'expired' });
    await nodes.allFree(claim.key);
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

  it('leaves nothing behind when it is released in the same tick', async () => {
    const claim = await held();
    await Promise.all([extendOn(backend, claim), releaseOn(backend, claim)]);
    await backend.close();
    expect(await nodes.owners(claim.key)).toEqual([null, null, null]);
  });
});
