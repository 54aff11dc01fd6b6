import { describe, expect, it, onTestFinished } from 'vitest';
import { COMMANDS_IN_FLIGHT } from '../../lib/core/backend/lane.js';
import { KEEP, RELEASE } from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import {
  acquireOn,
  backendOf,
  claimOn,
  extendOn,
  freshKey,
  granted,
  holderOn,
  now,
  releaseOn,
  warmUp,
} from '../support/claims.js';
import { redlockNodes } from '../support/redlock-nodes.js';
import { proxyTo } from '../support/stage.js';
import { until } from '../support/until.js';

/** Longer than a test may take: a call that waits for a hanging node does not end in time. */
const NEVER_MS = 60_000;
/** Time enough for a node that runs, on a busy machine. */
const SHORT_MS = 900;

/** Nodes of a Redlock, and backends on them, for one test. */
async function redlockOf(count: number, commandTimeoutMs: number) {
  const nodes = await redlockNodes(count);
  const open = () => backendOf({ redlock: nodes.urls, commandTimeoutMs });
  const backend = await open();
  onTestFinished(() => nodes.resume());
  await warmUp(backend);
  return { nodes, open, backend };
}

/** A lock that all three nodes have granted. */
async function held(commandTimeoutMs = SHORT_MS) {
  const { nodes, backend } = await redlockOf(3, commandTimeoutMs);
  const claim = claimOn(freshKey());
  await granted(backend, claim);
  await nodes.allGranted(claim.key);
  return { nodes, backend, claim };
}

describe('A Redlock of 5', () => {
  it('a Redlock decides as soon as a majority granted, without waiting for nodes that hang [G82]', async () => {
    const { nodes, backend } = await redlockOf(5, NEVER_MS);
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
    const { nodes, backend } = await redlockOf(5, SHORT_MS);
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
    const { nodes, backend } = await redlockOf(5, SHORT_MS);
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
    const { nodes, backend } = await redlockOf(5, NEVER_MS);
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
    const { nodes, backend, open } = await redlockOf(5, NEVER_MS);
    const contenders = [backend, await open(), await open()];
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
    const { nodes, backend } = await redlockOf(5, SHORT_MS);
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

describe('Extending a lock of a Redlock', () => {
  it('an extension puts the key back on a node of a Redlock that lost it [G88]', async () => {
    const { nodes, backend, claim } = await held();
    await nodes.drop(2, claim.key);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    await until(async () => (await nodes.owner(2, claim.key)) === claim.owner, { what: 'node 2 has it again' });
    expect(await nodes.servers[2]!.command('PTTL', `lock:{${claim.key}}`)).toBeGreaterThan(claim.ttlMs / 2);
    // With the token of its grant, and the mark that others may wait.
    const value = `${claim.owner}@${claim.grant!.fencingToken}+`;
    expect(await nodes.servers[2]!.command('GET', `lock:{${claim.key}}`)).toBe(value);
    // From now on this node counts like any other: another node may fail.
    await nodes.drop(0, claim.key);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
  });

  it('an extension puts the key back only when a majority is known to have it, so that nobody else can have held the lock in between [G89]', async () => {
    const { nodes, backend, claim } = await held();
    await nodes.drop(1, claim.key);
    nodes.pause(2);
    const unavailable = { status: 'unavailable', causes: [expect.objectContaining({ node: nodes.names(2)[0] })] };
    expect(await extendOn(backend, claim)).toEqual(unavailable);
    // Node 2 may have lost it, too. If node 1 had the lock again now, it would count the next time.
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
    const { nodes, backend, claim } = await held();
    for (const node of [0, 1]) {
      await nodes.drop(node, claim.key);
      if (other) await nodes.put(node, claim.key, other);
    }
    expect(await extendOn(backend, claim)).toEqual({ status: 'lost', reason });
    await until(async () => (await nodes.owner(2, claim.key)) === null, { what: 'the minority is given back' });
    await backend.close();
    expect(await nodes.owners(claim.key)).toEqual([other, other, null]);
  });

  it('does not put it back if it was released before a slow node reports its loss', async () => {
    const { nodes, backend, claim } = await held(NEVER_MS);
    await nodes.drop(2, claim.key);
    nodes.pause(2);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    nodes.resume();
    await nodes.allVote(backend); // behind everything that was sent because of the late answer
    expect(await nodes.owners(claim.key)).toEqual([null, null, null]);
  });
});

describe('A Redlock of 3', () => {
  /**
   * Releases a lock while a slow node does not know the script of the earlier attempt or extension, but knows this one.
   */
  const givenBackBeforeItIsSentAgain = async (late: string, known: Script, keepMs?: number) => {
    const { nodes, backend } = await redlockOf(3, NEVER_MS);
    const claim = claimOn(freshKey(), 60_000);
    if (late === 'extend') {
      await granted(backend, claim);
      await nodes.allGranted(claim.key);
    }
    const slow = nodes.servers[2]!;
    await nodes.allVote(backend); // none of its commands is in flight
    await slow.command('SCRIPT', 'FLUSH');
    await slow.command('SCRIPT', 'LOAD', known.source);
    const before = Number((await slow.calls()).eval ?? 0);
    nodes.pause(2);
    const { status } = await (late === 'acquire' ? acquireOn(backend, claim) : extendOn(backend, claim));
    expect(status).toBe(`${late}${late === 'acquire' ? 'd' : 'ed'}`);
    expect(await releaseOn(backend, claim, keepMs)).toEqual({ status: 'released' });
    nodes.resume();
    await backend.close(); // nothing is in flight any more
    expect((await slow.calls()).eval).toBeGreaterThan(before);
    return { nodes, claim };
  };

  it.each(['acquire', 'extend'])(
    'a lock is also kept on a slow node that did not know the script of the %s, and not longer [G334]',
    async (late) => {
      const { nodes, claim } = await givenBackBeforeItIsSentAgain(late, KEEP, 30_000);
      for (const server of nodes.servers) {
        expect(await server.command('GET', `lock:{${claim.key}}`)).toMatch(new RegExp(`^${claim.owner}@\\d{16}=$`));
        expect(await server.command('PTTL', `lock:{${claim.key}}`)).toBeLessThanOrEqual(30_000);
      }
    },
  );

  it.each(['acquire', 'extend'])(
    'leaves nothing on a slow node that did not know the script of the %s',
    async (late) => {
      const { nodes, claim } = await givenBackBeforeItIsSentAgain(late, RELEASE);
      expect(await nodes.owners(claim.key)).toEqual([null, null, null]);
    },
  );

  it('counts a lease from when the first of the votes that granted it was sent', async () => {
    const nodes = await redlockNodes(3);
    const proxy = await proxyTo(nodes.servers[1]!);
    const backend = await backendOf({
      redlock: [nodes.urls[0]!, proxy.url, nodes.urls[2]!],
      commandTimeoutMs: NEVER_MS,
    });
    onTestFinished(() => {
      proxy.release();
      nodes.resume();
    });
    nodes.pause(2);
    proxy.hold();
    for (let others = 0; others < 2 * COMMANDS_IN_FLIGHT; others++) {
      void acquireOn(backend, claimOn(freshKey(), 60_000)); // so many that the vote of the second node has to wait
      await new Promise(setImmediate);
    }
    const [claim, since] = [claimOn(freshKey(), 60_000), now()];
    const attempt = acquireOn(backend, claim);
    await until(() => nodes.owner(0, claim.key), { what: 'the first node has voted' });
    await until(() => now() > since + 600, { what: 'time has passed' });
    proxy.release();
    const outcome = (await attempt) as { status: string; sentAt: number };
    expect(outcome.status).toBe('acquired');
    expect(outcome.sentAt).toBeLessThan(since + 500);
  });
});
