import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { KEEP, RELEASE } from '../../lib/stores/redis/scripts/lua.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  acquireOn,
  claimOn,
  connected,
  extendOn,
  freshKey,
  granted,
  holderOn,
  now,
  opened,
  releaseOn,
} from '../support/claims.js';
import { RedlockNodes } from '../support/redlock-nodes.js';

describe('A Redlock of 3', () => {
  let nodes: RedlockNodes;
  let proxies: TcpProxy[];
  let backend: LockBackend;

  beforeAll(async () => {
    nodes = await RedlockNodes.start(3, ['--appendonly', 'yes', '--appendfsync', 'no']);
    proxies = await Promise.all(nodes.servers.map(({ port }) => TcpProxy.start(port)));
  });
  beforeEach(async () => {
    backend = await open(900);
  });
  afterEach(async () => {
    for (const proxy of proxies) {
      proxy.release();
      proxy.passReplies();
      await proxy.accept();
    }
    nodes.resume();
    await backend.close();
    await nodes.restart();
  });
  afterAll(async () => {
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    await nodes.stop();
  });

  const open = (commandTimeoutMs: number) =>
    connected({ redlock: proxies.map(({ url }) => url), commandTimeoutMs, admission: false });
  const waitsForSlowNodes = async () => {
    await backend.close();
    backend = await open(60_000);
  };
  const held = async (ttlMs?: number) => {
    const claim = claimOn(freshKey(), ttlMs);
    await granted(backend, claim);
    await nodes.allGranted(claim.key);
    return claim;
  };

  it('works with one node dead, is unavailable with two, and names them', async () => {
    await nodes.kill(0);
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    await nodes.kill(2);
    const causes = [0, 2].map((node) => expect.objectContaining({ node: `127.0.0.1:${proxies[node]!.port}` }));
    expect(await acquireOn(backend, claimOn(freshKey()))).toEqual({ status: 'unavailable', causes });
    expect(await extendOn(backend, claim)).toEqual({ status: 'unavailable', causes });
    // Of the first one it depends on how soon the client noticed its death whether it may have granted at all.
    expect(await releaseOn(backend, claim)).toEqual({
      status: 'unavailable',
      causes: expect.arrayContaining([causes[1]]),
    });
    await nodes.restart();
    await nodes.allVote(backend);
    await nodes.allFree(claim.key);
  });

  it('undoes a vote that a node which hung gives only when the lock would be over', async () => {
    const earlier = await held(); // the scripts are known to the nodes
    await releaseOn(backend, earlier);
    await nodes.allFree(earlier.key);
    const claim = claimOn(freshKey(), 1_500);
    const { del = 0 } = await nodes.servers[2]!.calls();
    nodes.pause(2);
    await granted(backend, claim);
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
    await releaseOn(backend, claim);
    const releasedAt = now();
    await until(() => now() > releasedAt + 1_600, { what: 'it would be over' });
    nodes.resume();
    await until(async () => (await nodes.servers[2]!.calls()).del === del + 1, { what: 'the vote is undone' });
  });

  it('releases on a node that was away as soon as it is back, and keeps no list of what it never granted', async () => {
    const claim = await held();
    await nodes.kill(2);
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    const holder = claimOn(freshKey());
    await granted(backend, holder);
    for (let round = 0; round < 50; round++) {
      expect(await acquireOn(backend, claimOn(holder.key))).toMatchObject({ status: 'contended' });
      const other = claimOn(freshKey());
      await granted(backend, other);
      expect(await releaseOn(backend, other)).toEqual({ status: 'released' });
    }
    proxies[2]!.refuse(); // so that it is read before it is released
    await nodes.restart();
    expect(await nodes.owner(2, claim.key)).toBe(claim.owner); // it kept its data
    await proxies[2]!.accept();
    await until(async () => (await nodes.servers[2]!.command('EXISTS', `lock:{${claim.key}}`)) === 0, {
      what: 'the missed release is made up for',
    });
    // Each release reads its lock: the one that was missed, and the look at it above.
    expect((await nodes.servers[2]!.calls()).get).toBe(2);
    await releaseOn(backend, holder);
  });

  it('asks a node that hangs for nothing more, and releases there what it was asked for', async () => {
    nodes.pause(1);
    const first = claimOn(freshKey());
    await granted(backend, first);
    await backend.inspect(first.key); // waits for the limit of the node
    for (let round = 0; round < 50; round++) {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      await acquireOn(backend, claimOn(claim.key));
      await extendOn(backend, claim);
      expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    }
    expect(await releaseOn(backend, first)).toEqual({ status: 'released' });
    nodes.resume();
    await until(() => nodes.fence(1, first.key), { what: 'the node has granted late' });
    await nodes.allFree(first.key);
    expect(await nodes.servers[1]!.keys(`lock:{key-*`)).toEqual([]);
  });

  it('releases on all nodes when an extension was sent to none, because all connections had broken', async () => {
    const claim = await held();
    for (const proxy of proxies) {
      proxy.refuse();
      proxy.cut();
    }
    await until(async () => JSON.stringify(await extendOn(backend, claim)).includes('not connected'), {
      what: 'the connections are known to be broken',
    });
    expect(await extendOn(backend, claim)).toMatchObject({ status: 'unavailable' });
    for (const proxy of proxies) await proxy.accept();
    await until(() => backend.inspect(claim.key).then(Boolean, () => false), { what: 'a majority answers again' });
    await nodes.allVote(backend);
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    await nodes.allFree(claim.key);
  });

  it.each([
    ['acquire', 'acquired'],
    ['extend', 'extended'],
  ] as const)(
    'leaves nothing on a slow node that did not know the script of the %s and got the release before it was sent again',
    async (late, status) => {
      await waitsForSlowNodes();
      let claim = claimOn(freshKey());
      if (late === 'extend') claim = await held();
      const slow = nodes.servers[2]!;
      await slow.command('SCRIPT', 'FLUSH');
      await slow.command('SCRIPT', 'LOAD', RELEASE.source);
      nodes.pause(2);
      expect(await (late === 'acquire' ? acquireOn(backend, claim) : extendOn(backend, claim))).toMatchObject({
        status,
      });
      expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
      nodes.resume();
      await backend.close(); // nothing is under way any more
      expect((await slow.calls()).eval).toBeGreaterThan(0);
      expect(await nodes.owners(claim.key)).toEqual([null, null, null]);
    },
  );

  it.each([
    ['acquire', 'acquired'],
    ['extend', 'extended'],
  ] as const)(
    'a lock is kept also on a slow node that did not know the script of the %s, and for no longer [G334]',
    async (late, status) => {
      await waitsForSlowNodes();
      let claim = claimOn(freshKey(), 60_000);
      if (late === 'extend') claim = await held(60_000);
      const slow = nodes.servers[2]!;
      await slow.command('SCRIPT', 'FLUSH');
      await slow.command('SCRIPT', 'LOAD', KEEP.source);
      nodes.pause(2);
      expect(await (late === 'acquire' ? acquireOn(backend, claim) : extendOn(backend, claim))).toMatchObject({
        status,
      });
      expect(await releaseOn(backend, claim, 30_000)).toEqual({ status: 'released' });
      nodes.resume();
      await backend.close(); // nothing is under way any more
      expect((await slow.calls()).eval).toBeGreaterThan(0);
      for (const server of nodes.servers) {
        expect(await server.command('GET', `lock:{${claim.key}}`)).toMatch(new RegExp(`^${claim.owner}@\\d{16}=$`));
        expect(await server.command('PTTL', `lock:{${claim.key}}`)).toBeLessThanOrEqual(30_000);
      }
    },
  );

  it('a lock is kept on a majority while a node is down, and on that node for what is left once it is back', async () => {
    const claim = await held(60_000);
    await nodes.kill(2);
    expect(await releaseOn(backend, claim, 50_000)).toEqual({ status: 'released' });
    expect(await holderOn(backend, claim.key)).toMatchObject({ owner: claim.owner, isKept: true });
    const refusal = { status: 'contended', owner: claim.owner, isKept: true };
    expect(await acquireOn(backend, claimOn(claim.key))).toMatchObject(refusal);
    await nodes.restart(); // it kept its data
    const valueThere = () => nodes.servers[2]!.command('GET', `lock:{${claim.key}}`);
    await until(async () => String(await valueThere()).endsWith('='), { what: 'it is kept there, too' });
    expect(await nodes.servers[2]!.command('PTTL', `lock:{${claim.key}}`)).toBeLessThan(50_000);
    await backend.forceRelease(claim.key);
  });

  it('a lock that only a minority is known to keep is shown as held', async () => {
    const claim = await held(60_000);
    proxies[1]!.hold();
    proxies[2]!.hold();
    const releasing = releaseOn(backend, claim, 50_000);
    await until(async () => String(await nodes.servers[0]!.command('GET', `lock:{${claim.key}}`)).endsWith('='), {
      what: 'one node keeps it',
    });
    const other = await connected({ redlock: nodes.urls, commandTimeoutMs: 2_000, admission: false });
    expect((await holderOn(other, claim.key))!.isKept).toBeUndefined();
    await other.close();
    for (const proxy of proxies) proxy.release();
    await releasing;
    await until(async () => (await holderOn(backend, claim.key))?.isKept, { what: 'a majority keeps it' });
    await backend.forceRelease(claim.key);
  });

  it('gives back the votes of an attempt whose connections broke', async () => {
    await nodes.allVote(backend); // so that each node knows the script, and runs it without an answer
    const claim = claimOn(freshKey());
    for (const proxy of proxies.slice(1)) proxy.dropReplies();
    const before = await nodes.fences(claim.key);
    const attempt = acquireOn(backend, claim);
    for (const node of [1, 2]) {
      await until(async () => (await nodes.fence(node, claim.key)) > before[node]!, {
        what: `node ${node} has granted`,
      });
    }
    for (const proxy of proxies) proxy.passReplies();
    expect(await attempt).toMatchObject({ status: 'unavailable' });
    await nodes.allFree(claim.key);
  });

  it('closes only when votes that are still under way are given back', async () => {
    await waitsForSlowNodes();
    const key = freshKey();
    await nodes.put(0, key, 'holder');
    await nodes.put(1, key, 'holder');
    proxies[2]!.hold();
    expect(await acquireOn(backend, claimOn(key))).toMatchObject({ status: 'contended', owner: 'holder' });
    const closed = backend.close();
    proxies[2]!.release();
    await closed;
    expect(await nodes.fence(2, key)).toBeGreaterThan(1e15);
    expect(await nodes.owners(key)).toEqual(['holder', 'holder', null]);
  });

  it('closes only when the slowest node has released', async () => {
    await waitsForSlowNodes();
    const claim = await held();
    for (const server of nodes.servers) await server.command('SCRIPT', 'FLUSH');
    proxies[2]!.hold();
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    const closed = backend.close();
    proxies[2]!.release();
    await closed;
    expect(await nodes.owners(claim.key)).toEqual([null, null, null]);
  });

  it('connects as soon as a majority is there, and tells what is wrong with the rest', async () => {
    await nodes.kill(1);
    const second = await connected({ redlock: nodes.urls, admission: false });
    await second.close();
    // A limit that no test waits for.
    const third = await connected({ redlock: nodes.urls, commandTimeoutMs: 100, admission: false });
    expect(await third.connect(600_000)).toEqual([expect.objectContaining({ node: nodes.names(1)[0] })]);
    await nodes.kill(2);
    await until(async () => (await acquireOn(third, claimOn(freshKey()))).status === 'unavailable', {
      what: 'the majority is gone',
    });
    const error = await third.connect(200).catch((reason: Error) => reason);
    expect(error).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    for (const name of nodes.names(1, 2)) expect((error as Error).message).toContain(name);
    await third.close();
    await nodes.restart();
    await nodes.allVote(backend);
  });
});

it('A Redlock of clients that throw when they are to connect is unavailable, and names them', async () => {
  const clients = ['a', 'b', 'c'].map((host) => {
    const client = new Redis({ host, lazyConnect: true });
    client.connect = () => {
      throw new Error('patched');
    };
    return client;
  });
  const causes = ['a', 'b', 'c'].map((host) => expect.objectContaining({ node: `${host}:6379` }));
  const backend = await opened({ redlock: clients, commandTimeoutMs: 100, admission: false });
  await expect(backend.connect(100)).rejects.toMatchObject({ causes });
  expect(await acquireOn(backend, claimOn(freshKey()))).toEqual({ status: 'unavailable', causes });
  await backend.close();
});
