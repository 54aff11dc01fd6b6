import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { replicaOf } from '../support/replica-of.js';
import type { RedisServer } from '../support/redis-server.js';
import type { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { FencedStore } from './fenced-store.js';
import { tryLock } from '../support/naive.js';
import { clientOf, ownersOf, proxyTo, redisServer, redisServers } from '../support/stage.js';
import { counterOn } from '../support/stored.js';

/** A primary with a replica behind a proxy, which can hold back the stream of changes. */
async function replicated(): Promise<{ primary: RedisServer; stream: TcpProxy; replica: RedisServer }> {
  const primary = await redisServer();
  const stream = await proxyTo(primary);
  return { primary, stream, replica: await replicaOf(primary, stream) };
}

async function failOver(primary: RedisServer, replica: RedisServer): Promise<void> {
  await primary.kill();
  await replica.command('REPLICAOF', 'NO', 'ONE');
}

/** A locks, the failover comes, B locks, and both write. */
async function laterHolderIsGreater(primary: RedisServer, stream: TcpProxy, replica: RedisServer): Promise<void> {
  const stock = new FencedStore();
  const a = await openLocks({ redis: primary.url });
  stream.dropReplies();
  await a.withLock('key', () => {}); // the replica does not get this either
  const lockOfA = await a.acquire('key');
  await failOver(primary, replica);
  const b = await openLocks({ redis: replica.url });
  const lockOfB = await b.acquire('key', { waitMs: 0 });
  expect(lockOfA.isHeld).toBe(true); // as far as A can know
  expect(stock.write('as B sold it', lockOfB.fencingToken)).toBe(true);
  expect(stock.write('as A saw it', lockOfA.fencingToken)).toBe(false);
  expect(lockOfB.fencingToken).toBeGreaterThan(lockOfA.fencingToken);
}

describe('H10: the primary fails before it has replicated the lock', () => {
  it('a naive lock has two holders after a failover, and nothing distinguishes the late write of the first from the work of the second', async () => {
    const { primary, stream, replica } = await replicated();
    stream.dropReplies();
    expect(await tryLock(clientOf(primary), 'lock', 'A', 60_000)).toBe(true);
    await failOver(primary, replica);
    expect(await tryLock(clientOf(replica), 'lock', 'B', 60_000)).toBe(true);
    let stock = 'as B sold it';
    stock = 'as A saw it';
    expect(stock).toBe('as A saw it');
  });

  it('this library may have two holders after a failover of one Redis, but the second has the greater token [G159]', async () => {
    const { primary, stream, replica } = await replicated();
    await laterHolderIsGreater(primary, stream, replica);
  });

  it('this library gives the second holder the greater token after a failover to a replica that knows an old counter [G16]', async () => {
    const { primary, stream, replica } = await replicated();
    const before = await openLocks({ redis: primary.url });
    const { fencingToken } = await before.withLock('key', (lock) => lock);
    await until(async () => (await counterOn(replica)) === fencingToken, { what: 'the replica has the counter' });
    await laterHolderIsGreater(primary, stream, replica);
  });

  it('this library, as a Redlock over independent masters, has one holder when a master fails for good [G160]', async () => {
    const masters = await redisServers(3);
    const options = { redlock: masters.map(({ url }) => url), commandTimeoutMs: 10_000 };
    const [a, b] = [await openLocks(options), await openLocks(options)];
    const lockOfA = await a.acquire('key');
    const hasIt = async () => (await ownersOf(masters, 'key')).every((owner) => owner === lockOfA.owner);
    await until(hasIt, { what: 'all masters have it' }); // two would suffice for A
    await masters[0]!.kill();
    expect(await b.tryAcquire('key')).toBeNull();
    await lockOfA.extend();
    expect(lockOfA.isHeld).toBe(true);
    expect(await lockOfA.release()).toBe(true);
    expect(await b.acquire('key')).toMatchObject({ isHeld: true });
  });
});
