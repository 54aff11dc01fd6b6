import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { Lock, LockService, RedisLockSettings } from 'nest-redis-lock';
import { readMessage } from '../../lib/stores/node/messages.js';
import { tryLock } from '../support/naive.js';
import { openLocks } from '../support/open-locks.js';
import { SentinelGroup } from '../support/redis-sentinel.js';
import type { RedisServer } from '../support/redis-server.js';
import { sentinelGroup } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';

/** For a busy machine. */
const commandTimeoutMs = 10_000;

/** Locks of an application that finds its Redis through the Sentinels. */
function locksOf({ options }: SentinelGroup, settings: RedisLockSettings = {}): Promise<LockService> {
  return openLocks({ redis: options, commandTimeoutMs, ...settings });
}

/** Locks of an application that is given the address of the primary. */
function locksAt({ url }: RedisServer): Promise<LockService> {
  return openLocks({ redis: url, commandTimeoutMs });
}

/** A client that finds its Redis through the Sentinels, for the naive lock. */
function clientOf({ options }: SentinelGroup): Redis {
  const client = new Redis(options).on('error', () => {});
  onTestFinished(() => client.disconnect());
  return client;
}

const ONE = { count: 1, timeoutMs: 10_000 };

describe('A failover by Sentinel', () => {
  /** One for each test; they start in parallel. */
  let groups: SentinelGroup[];
  let taken = 0;
  beforeAll(async () => {
    groups = await Promise.all(Array.from({ length: 4 }, () => SentinelGroup.start()));
  });
  afterAll(() => Promise.all(groups.map((group) => group.stop())));

  it('a failover to a replica that has not received a lock loses it, also when another replica acknowledged it: the second holder has the greater token [G71]', async () => {
    const group = groups[taken++]!;
    const naive = clientOf(group);
    const [plain, withOne] = [await locksOf(group), await locksOf(group, { waitForReplicas: ONE })];
    const withBoth = await locksOf(group, { waitForReplicas: { count: 2, timeoutMs: 1_000 } });

    group.replicas[0].stream.dropReplies(); // the one that will be promoted
    expect(await tryLock(naive, 'naive', 'A', 60_000)).toBe(true);
    const [plainLock, lockWithOne] = [await plain.acquire('plain'), await withOne.acquire('with one')];
    const refusal = () =>
      withBoth.acquire('with both').then(
        () => 'granted',
        ({ message }: Error) => message,
      );
    await until(async () => (await refusal()).includes('1 of 2 replicas had it within 1000 ms'), {
      what: 'it is refused, though one replica has it',
    });

    await group.primary.kill();
    const promoted = await group.failedOver();
    const others = await locksAt(promoted);

    expect(await promoted.command('SET', 'naive', 'B', 'PX', 60_000, 'NX')).toBe('OK');
    for (const lost of [plainLock, lockWithOne]) {
      const second = await others.acquire(lost.key, { waitMs: 0 });
      expect(lost.isHeld).toBe(true); // as far as the first holder can know
      expect(second.fencingToken).toBeGreaterThan(lost.fencingToken);
    }
  });

  it('a failover to the replica that acknowledged a lock keeps it: others are refused, and its holder extends and releases it [G72]', async () => {
    const group = groups[taken++]!;
    const holder = await locksOf(group, { waitForReplicas: ONE });
    group.replicas[1].stream.dropReplies(); // so the other one acknowledged it
    const lock = await holder.acquire('key');

    await group.primary.kill();
    const promoted = await group.failedOver();
    const others = await locksAt(promoted);

    expect(await others.tryAcquire('key')).toBeNull();
    await group.follows(promoted); // until then no replica could acknowledge an extension
    await isExtended(lock);
    await isConnected(holder);
    expect(await ownerOn(promoted, 'key')).toBe(lock.owner);
    expect(lock.isHeld).toBe(true);
    expect(await lock.release()).toBe(true);
    const next = await others.acquire('key', { waitMs: 0 });
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  });

  it('waiters outlast a failover if commandTimeoutMs is longer, and the lock is handed over to one on the new primary [G80]', async () => {
    const group = groups[taken++]!;
    const options = { waitForReplicas: ONE, commandTimeoutMs: 20_000 };
    const [holder, waiter] = [await locksOf(group, options), await locksOf(group, options)];
    const lock = await holder.acquire('key');
    const waiting = waiter.acquire('key', { waitMs: 60_000 });
    await isInQueue(group.primary);

    await group.primary.kill();
    const promoted = await group.failedOver();
    await until(async () => ((await promoted.command('PUBSUB', 'CHANNELS', 'lock:inbox:*')) as string[]).length === 1, {
      what: 'the waiting call listens to the new primary',
    });
    await isInQueue(promoted);
    await group.follows(promoted);
    await isExtended(lock);
    await isConnected(holder);
    const told = await messagesOf(promoted);
    expect(await lock.release()).toBe(true);
    const second = await waiting;
    await until(() => told.length > 0, { what: 'it is notified' }); // so it does not have to poll
    expect(told.map((text) => readMessage(text).ticket)).toEqual([second.owner]);
    expect(second.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(await ownerOn(promoted, 'key')).toBe(second.owner);
  });

  it('waiters of a failover that is longer than commandTimeoutMs are rejected within that time, leave nothing behind, and may ask again [G81]', async () => {
    const group = groups[taken++]!;
    const [holder, waiter] = [await locksOf(group), await locksOf(group, { commandTimeoutMs: 1_500 })];
    const lock = await holder.acquire('key', { ttlMs: 3_000, watchdog: false });
    const waiting = expect(waiter.acquire('key', { waitMs: 60_000 })).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
    });
    await isInQueue(group.primary);
    await until(() => group.replicas[0].server.command('EXISTS', 'lock:{key}'), {
      what: 'the replica has received it',
    });
    await group.primary.kill();
    await waiting;
    await group.failedOver();
    // The holder and its connection are gone, but the new primary knows when its lease ends.
    const second = await until(() => waiter.tryAcquire('key').catch(() => null), { what: 'the lock is free' });
    expect(lock.isHeld).toBe(false);
    expect(second.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(await second.release()).toBe(true);
    await until(() => waiter.size === 0, { what: 'nothing is left of the wait' });
  });

  /** It also cuts the connection on which locks are released: extensions have another one. */
  async function isConnected(locks: LockService): Promise<void> {
    await until(() => locks.isLocked('key').catch(() => false), { what: 'the holder is connected to the new primary' });
  }

  async function isExtended(lock: Lock): Promise<void> {
    const extended = () =>
      lock.extend().then(
        () => true,
        () => false,
      );
    await until(extended, { what: 'the holder is connected to the new primary' });
  }

  /** The messages that this server sends to waiting calls from now on. */
  async function messagesOf({ url }: RedisServer): Promise<string[]> {
    const messages: string[] = [];
    const listener = new Redis(url).on('pmessage', (_pattern, _channel, message: string) => messages.push(message));
    onTestFinished(() => listener.disconnect());
    await listener.psubscribe('lock:inbox:*');
    return messages;
  }

  function isInQueue(server: RedisServer): Promise<unknown> {
    return until(async () => (await server.command('ZCOUNT', 'lock:{key}:queue', '0', '+inf')) === 1, {
      what: 'it waits',
    });
  }
});

/** Longer than a failover takes on a busy machine. */
const LEASE = { ttlMs: 20_000, watchdog: false };
const MARGIN_MS = 17_500;
/** How far the clock of the replica is ahead: Redis tells replicas when a key ends, not how long it lives. */
const AHEAD_MS = 16_500;

describe('marginMs', () => {
  it('marginMs ends a lease before a promoted replica whose clock is ahead by less does so; without marginMs there are two holders [G79]', async () => {
    const group = await sentinelGroup();
    const waitForReplicas = { count: 2, timeoutMs: 6_000 };
    const [guarded, unguarded] = [
      await locksOf(group, { ...LEASE, waitForReplicas, marginMs: MARGIN_MS }),
      await locksOf(group, { ...LEASE, waitForReplicas }),
    ];
    const unguardedLock = await unguarded.acquire('unguarded');
    const guardedLock = await until(() => guarded.tryAcquire('guarded').catch(() => null), {
      what: 'the lock is granted in what the margin leaves of its lease',
    });

    await group.primary.kill();
    const promoted = await group.failedOver();
    for (const { key } of [guardedLock, unguardedLock]) {
      const leftMs = Number(await promoted.command('PTTL', `lock:{${key}}`));
      await promoted.command('PEXPIRE', `lock:{${key}}`, Math.max(0, leftMs - AHEAD_MS));
    }

    const others = await locksAt(promoted);
    const whenFree = (key: string) => until(() => others.tryAcquire(key), { what: `"${key}" is free` });
    const held = await Promise.all([
      whenFree('guarded').then(() => guardedLock.isHeld),
      whenFree('unguarded').then(() => unguardedLock.isHeld),
    ]);
    expect(held).toEqual([false, true]);
  });
});

describe('A primary that was replaced while it hung, and does not know it', () => {
  it('a primary that was replaced while it hung still grants and extends locks, but none with waitForReplicas, since no replica follows it any more [G78]', async () => {
    const group = await sentinelGroup();
    const [plain, safe] = [
      await locksOf(group),
      await locksOf(group, { waitForReplicas: { count: 1, timeoutMs: 1_000 } }),
    ];
    await plain.withLock('key', () => {}); // connected
    const lock = await until(() => safe.tryAcquire('held before').catch(() => null), {
      what: 'it is acknowledged in time',
    });

    group.primary.pause();
    const promoted = await group.failedOver();
    await group.killSentinels(); // otherwise they would soon make it a replica
    group.primary.resume();

    const others = await locksAt(promoted);
    const first = await others.acquire('key', { waitMs: 0 });
    const second = await plain.acquire('key', { waitMs: 0 });
    expect([first.isHeld, second.isHeld]).toEqual([true, true]);
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken); // the later grant, from either server

    const refused = { code: 'LOCK_UNAVAILABLE', message: expect.stringContaining('0 of 1 replicas had it') };
    await Promise.all([
      expect(safe.acquire('key 2', { waitMs: 0 })).rejects.toMatchObject(refused),
      expect(lock.extend()).rejects.toMatchObject(refused),
    ]);
    expect(await others.tryAcquire('held before')).toBeNull();
  });
});
