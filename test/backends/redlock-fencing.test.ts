import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { AcquireOutcome, LockBackend } from 'nest-redis-lock/testing';
import { openBackend } from '../../lib/compose/open-locks.js';
import { processName } from '../../lib/compose/process-name.js';
import { resolveOptions } from '../../lib/compose/redis-lock-options.js';
import { tokenText } from '../../lib/stores/redis/node/lock-keys.js';
import { RAISE_FENCE } from '../../lib/stores/redis/scripts/lua.js';
import { clientOf } from '../support/stage.js';
import { shardOf } from '../support/stored.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { acquireOn, claimOn, connected, freshKey, granted, holderOn, now, releaseOn } from '../support/claims.js';
import { RedlockNodes } from '../support/redlock-nodes.js';

const HIGH = 3e15;

describe('Fencing tokens of a Redlock', () => {
  let nodes: RedlockNodes;
  let proxy: TcpProxy;
  let backend: LockBackend;

  beforeAll(async () => {
    nodes = await RedlockNodes.start(3);
    proxy = await TcpProxy.start(nodes.servers[0]!.port);
  });
  beforeEach(async () => {
    // A limit that never comes: a node that hangs just is not part of the majority.
    const redlock = [proxy.url, ...nodes.urls.slice(1)];
    backend = await connected({ redlock, commandTimeoutMs: 60_000 });
    const warmUp = claimOn(freshKey());
    await nodes.setFence(0, warmUp.key, HIGH); // so that the script of the write-back is known to each node
    await nodes.setFence(1, warmUp.key, HIGH + 1);
    await nodes.setFence(2, warmUp.key, HIGH + 2);
    await granted(backend, warmUp);
    await releaseOn(backend, warmUp);
  });
  afterEach(async () => {
    nodes.resume();
    await backend.close();
  });
  afterAll(async () => {
    await proxy.stop();
    await nodes.stop();
  });

  it.each([
    ['that were used before', 10],
    ['that were never used before', 1_100],
  ])('cost one round trip in at least 99 % of the acquisitions of locks %s', async (_, count) => {
    const keys = Array.from({ length: count }, () => freshKey());
    let next = 0;
    const turns = async (count: number) => {
      for (let turn = 1; turn <= count; turn++) {
        const claim = claimOn(keys[next++ % keys.length]!);
        await granted(backend, claim);
        // The slowest node is behind by the turns before: by so few that none of its votes and releases has to wait.
        const isTenth = turn % 10 === 0;
        if (isTenth) await nodes.allGranted(claim.key);
        await releaseOn(backend, claim);
        if (isTenth) await nodes.allFree(claim.key);
      }
    };
    await turns(100);
    await Promise.all(nodes.servers.map((server) => server.command('CONFIG', 'RESETSTAT')));
    await turns(1_000);
    const calls = await Promise.all(
      nodes.servers.map(async (server) => {
        const stats = String(await server.command('INFO', 'commandstats'));
        return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)![1]);
      }),
    );
    // A vote and a release for each turn; what is more is written back.
    expect(Math.max(...calls)).toBeLessThanOrEqual(2_000 + 10);
    expect(Math.min(...calls)).toBeGreaterThanOrEqual(2_000);
  });

  it('a fencing token of a Redlock is the highest of the counters that granted, and a majority knows it before it is issued [G17]', async () => {
    const claim = claimOn(freshKey());
    await nodes.setFence(0, claim.key, HIGH);
    await nodes.setFence(1, claim.key, HIGH + 50);
    await nodes.setFence(2, claim.key, HIGH + 10);
    nodes.pause(2);
    const { fencingToken } = await granted(backend, claim);
    expect(fencingToken).toBe(HIGH + 51);
    expect(await nodes.fence(0, claim.key)).toBe(HIGH + 51);
    expect(await nodes.fence(1, claim.key)).toBe(HIGH + 51);
    expect(await nodes.servers[0]!.command('PTTL', shardOf(claim.key))).toBe(-1);
    await releaseOn(backend, claim);
  });

  it('the next holder of a Redlock gets a larger fencing token, even if another majority answers [G18]', async () => {
    const first = claimOn(freshKey());
    await nodes.setFence(0, first.key, HIGH);
    await nodes.setFence(1, first.key, HIGH + 50);
    await nodes.setFence(2, first.key, HIGH + 10);
    nodes.pause(2);
    const one = await granted(backend, first);
    expect(await releaseOn(backend, first)).toEqual({ status: 'released' });
    nodes.resume();
    nodes.pause(1); // the node whose counter was the highest
    const second = claimOn(first.key);
    const two = await granted(backend, second);
    expect(two.fencingToken).toBeGreaterThan(one.fencingToken);
    await releaseOn(backend, second);
  });

  it('cost nothing extra, and the counters of all nodes are at one value after each', async () => {
    const key = freshKey();
    const cycle = async () => {
      const claim = claimOn(key);
      const { fencingToken } = await granted(backend, claim);
      // The node whose answer was not needed is at it, too.
      await until(async () => (await nodes.fences(key)).every((counter) => counter === fencingToken), {
        what: 'all counters are at the token',
      });
      await releaseOn(backend, claim);
      await nodes.allFree(key);
    };
    await cycle();
    await Promise.all(nodes.servers.map((server) => server.resetCalls()));
    for (let round = 0; round < 20; round++) await cycle();
    for (const server of nodes.servers) {
      // The last release of the slowest node may still be on its way.
      await until(async () => (await server.calls()).evalsha === 40, { what: '20 acquires and 20 releases were sent' });
    }
  });

  it('are not proposed further and further ahead when one node has a counter that is far ahead', async () => {
    for (let round = 0; round < 5; round++) {
      const claim = claimOn(freshKey());
      await nodes.setFence(2, claim.key, HIGH);
      await granted(backend, claim);
      await releaseOn(backend, claim);
      await nodes.allFree(claim.key);
    }
    const claim = claimOn(freshKey());
    const { fencingToken } = await granted(backend, claim);
    const [seconds] = (await nodes.servers[0]!.command('TIME')) as string[];
    expect(fencingToken).toBeLessThan((Number(seconds) + 2) * 1_000_000);
    await releaseOn(backend, claim);
  });

  it('an attempt of a Redlock is settled once, also when further nodes vote or record its token later', async () => {
    const claim = claimOn(freshKey());
    for (const node of [0, 1, 2]) await nodes.setFence(node, claim.key, HIGH + node);
    nodes.pause(2);
    const outcomes: AcquireOutcome[] = [];
    backend.acquire(claim, (outcome) => outcomes.push(outcome));
    await until(() => outcomes.length > 0, { what: 'two nodes have voted and recorded the token' });
    nodes.resume();
    await until(async () => (await nodes.owner(2, claim.key)) === claim.owner, { what: 'the late node has voted' });
    await nodes.allVote(backend); // behind its answers
    expect(outcomes).toMatchObject([{ status: 'acquired', grant: { fencingToken: HIGH + 2 } }]);
    claim.grant = outcomes.flatMap((outcome) => (outcome.status === 'acquired' ? [outcome.grant] : []))[0];
    await releaseOn(backend, claim);
    await nodes.allFree(claim.key);
  });

  it.each([
    ['the first', 'that asks nodes for their time before they vote', true],
    ['the second', 'that learns their time from their votes', false],
  ])(
    'cost one round trip from %s acquisition of a process %s, though its clock is an hour ahead',
    async (from, _how, admission) => {
      await backend.close(); // it sends nothing more
      const options = resolveOptions({ redlock: nodes.urls, admission, commandTimeoutMs: 20_000 });
      const ahead = await openBackend(options, () => now() + 3_600_000, processName());
      onTestFinished(() => ahead.close());
      await ahead.connect(15_000);
      await until(async () => (await ahead.ping()).nodes.voting === 3, { what: 'all nodes vote' });
      const turn = async () => {
        const claim = claimOn(freshKey());
        for (const server of nodes.servers) await server.command('DEL', shardOf(claim.key)); // another test may have set it
        await granted(ahead, claim);
        await nodes.allGranted(claim.key);
        await releaseOn(ahead, claim);
        await nodes.allFree(claim.key);
      };
      if (from === 'the second') await turn();
      await Promise.all(nodes.servers.map((server) => server.resetCalls()));
      for (let round = 0; round < 5; round++) await turn();
      for (const server of nodes.servers) expect((await server.calls()).evalsha).toBe(10);
    },
  );

  it('a fencing token that a majority of a Redlock voted for is issued, although another was being written back', async () => {
    await backend.close();
    backend = await connected({ redlock: [proxy.url, ...nodes.urls.slice(1)], commandTimeoutMs: 5_000 });
    const claim = claimOn(freshKey());
    await nodes.setFence(2, claim.key, HIGH);
    nodes.pause(1);
    const cut = proxy.cutAfterRequest(RAISE_FENCE.sha);
    const acquiring = granted(backend, claim);
    await cut; // the first and the last node have voted for different tokens
    nodes.resume(); // it votes as the first did
    const { fencingToken } = await acquiring;
    expect(fencingToken).toBeLessThan(HIGH);
    await releaseOn(backend, claim);
    await nodes.allFree(claim.key);
  });

  it('a fencing token is not written back to a Redlock node whose connection broke since its vote, as it may have restarted', async () => {
    await backend.close();
    const client = clientOf(proxy);
    const redlock = [client, ...nodes.urls.slice(1)];
    backend = await connected({ redlock, commandTimeoutMs: 20_000 });
    const claim = claimOn(freshKey());
    for (const [node, counter] of [HIGH, HIGH + 50, HIGH + 50].entries())
      await nodes.setFence(node, claim.key, counter);
    nodes.pause(1, 2);
    const acquiring = granted(backend, claim);
    await until(async () => (await nodes.owner(0, claim.key)) === claim.owner, { what: 'the first node has voted' });
    await client.ping(); // its answer comes behind that vote
    const connectedAgain = new Promise((resolve) => client.once('ready', resolve));
    proxy.cut();
    await connectedAgain;
    nodes.resume();
    expect((await acquiring).fencingToken).toBe(HIGH + 51);
    await releaseOn(backend, claim);
    await nodes.allFree(claim.key); // behind all that was sent before
    expect(await nodes.fences(claim.key)).toEqual([HIGH + 1, HIGH + 51, HIGH + 51]);
  });

  it('a fencing token that cannot reach a majority is not issued, and the lock is given back [G19]', async () => {
    await backend.close();
    backend = await connected({ redlock: [proxy.url, ...nodes.urls.slice(1)], commandTimeoutMs: 900 });
    const claim = claimOn(freshKey());
    await nodes.setFence(0, claim.key, HIGH);
    await nodes.setFence(1, claim.key, HIGH + 50);
    nodes.pause(2);
    const cut = proxy.cutAfterRequest(RAISE_FENCE.sha);
    const outcome = await acquireOn(backend, claim);
    await cut;
    expect(outcome).toEqual({
      status: 'unavailable',
      causes: [`127.0.0.1:${proxy.port}`, ...nodes.names(2)].map((node) => expect.objectContaining({ node })),
    });
    nodes.resume();
    await until(() => nodes.fence(2, claim.key), { what: 'the late node has granted' });
    await nodes.allFree(claim.key);
  });

  it('no fencing token is issued on the word of a node that granted late and had drawn a larger number by then [G20]', async () => {
    await backend.close();
    backend = await connected({ redlock: [proxy.url, ...nodes.urls.slice(1)], commandTimeoutMs: 5_000 });
    const claim = claimOn(freshKey());
    await nodes.setFence(0, claim.key, HIGH);
    await nodes.setFence(1, claim.key, HIGH + 50);
    await nodes.setFence(2, claim.key, HIGH + 500); // which another holder may have been given
    nodes.pause(2);
    const cut = proxy.cutAfterRequest(RAISE_FENCE.sha);
    const acquiring = acquireOn(backend, claim);
    await cut;
    nodes.resume(); // it grants, and is told the token of the others, which is below its own
    expect(await acquiring).toEqual({
      status: 'unavailable',
      causes: [expect.objectContaining({ node: `127.0.0.1:${proxy.port}` })],
    });
    expect(await nodes.fence(2, claim.key)).toBe(HIGH + 501);
    await nodes.allFree(claim.key);
  });

  it('are told by inspect as they were issued, also when a late node has counted further', async () => {
    const claim = claimOn(freshKey());
    for (const node of [0, 1]) await nodes.setFence(node, claim.key, HIGH);
    await nodes.setFence(2, claim.key, HIGH + 500);
    nodes.pause(2);
    const { fencingToken } = await granted(backend, claim);
    expect(fencingToken).toBe(HIGH + 1);
    nodes.resume();
    await until(() => nodes.owner(2, claim.key), { what: 'the late node has granted' });
    expect(await holderOn(backend, claim.key)).toMatchObject({ owner: claim.owner, fencingToken });
    const another = `${claim.owner}@${tokenText(HIGH + 900)}`;
    await nodes.servers[0]!.command('SET', `lock:{${claim.key}}`, another, 'KEEPTTL');
    expect((await holderOn(backend, claim.key))?.fencingToken).toBeUndefined();
    await releaseOn(backend, claim);
  });
});
