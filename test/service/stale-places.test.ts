import { describe, expect, it } from 'vitest';
import type { Lock, LockService } from 'nest-redis-lock';
import { scriptCalls } from '../support/script-calls.js';
import { proxyTo } from '../support/stage.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, ownerOf, untilQueued } = await sceneOfFile();

const PROCESSES = 8;
/** Less than the time of an unconfirmed grant. */
const SOON_MS = 1_500;

type Held = Pick<Lock, 'release'>;

/**
 * Several processes wait for a lock, and have their turns; then their places are in the queue again, and the lock is
 * held.
 */
async function wentBack(key: string, wait: (locks: LockService) => Promise<Held>) {
  const locks = await open();
  const others = await Promise.all(Array.from({ length: PROCESSES }, () => open()));
  const holder = await locks.acquire(key);
  const waiting = others.map(wait);
  await untilQueued(key, PROCESSES);
  const queue = (await server.command('ZRANGE', `lock:{${key}}:queue`, 0, -1, 'WITHSCORES')) as string[];
  await holder.release();
  await Promise.all(waiting.map(async (lock) => (await lock).release()));
  const next = await locks.acquire(key);
  const members = queue.flatMap((member, at) => (at % 2 === 0 ? [queue[at + 1]!, member] : []));
  await server.command('ZADD', `lock:{${key}}:queue`, ...members);
  return { next, others };
}

describe('places that are in the queue of a lock although nobody waits there', () => {
  it.each<[string, (locks: LockService, key: string) => Promise<Held>]>([
    ['exclusive locks', (locks, key) => locks.acquire(key)],
    ['shared locks', (locks, key) => locks.acquire(key, { mode: 'shared' })],
    ['permits', (locks, key) => locks.acquirePermits(key, { limit: PROCESSES })],
  ])(
    'the places of %s that come back with an older state of the store cost the next holder no unconfirmed grant [G1010]',
    async (what, wait) => {
      const key = `back ${what}`;
      const { next, others } = await wentBack(key, (locks) => wait(locks, key));
      const waits = others[0]!.acquire(key, { waitMs: SOON_MS });
      await untilQueued(key, PROCESSES + 1);
      await next.release();
      const lock = await waits;
      expect(await ownerOf(key)).toBe(lock.owner);
      await lock.release();
    },
  );

  it('a lock that was handed over to such a place is given back by one command [G1011]', async () => {
    const { next, others } = await wentBack('once', (locks) => locks.acquire('once'));
    const waits = others[0]!.acquire('once', { waitMs: SOON_MS });
    await untilQueued('once', PROCESSES + 1);
    await server.resetCalls();
    await next.release();
    const lock = await waits;
    await until(() => lock.remainingMs > SOON_MS * 10, { what: 'it is extended' });
    expect(await scriptCalls(server)).toBe(1 + PROCESSES + 1);
    await lock.release();
  });
});

/** The channel of the process of an owner value. */
const channelOf = (owner: string) => `lock:inbox:3:${owner.slice(0, owner.lastIndexOf('/'))}`;

/** The message of a script about a hand-over. */
const tell = (channel: string, owner: string, token: number, key: string) =>
  server.command('PUBLISH', channel, `${owner} ${token} ${token} ${token} lock:{${key}}`);

/** Two services; the second one gets messages, and has a lock that it waited for. */
async function listening(key: string, way?: TcpProxy) {
  const [locks, others] = [await open(), await open({}, way?.url)];
  const holder = await locks.acquire(key);
  const waiting = others.acquire(key);
  await untilQueued(key);
  await holder.release();
  return { locks, others, lock: await waiting };
}

/** Waits until the process of this channel has handled the earlier messages, and Redis its commands. */
async function acted(locks: LockService, channel: string): Promise<void> {
  const stale = `${channel.slice('lock:inbox:3:'.length)}/stale`;
  await server.command('SET', 'lock:{stale}', `${stale}@0000000000000001+`);
  await tell(channel, stale, 1, 'stale');
  await until(async () => (await ownerOf('stale')) === null, { what: 'it gives back what nobody has' });
  await locks.inspect('stale');
}

describe('a message that a lock was handed over, which comes late', () => {
  it('leaves alone a lock that its process holds, holds for its work after maxHoldMs, or keeps [G1012]', async () => {
    const { others, lock } = await listening('late');
    const channel = channelOf(lock.owner);
    await tell(channel, lock.owner, lock.fencingToken, 'late');
    await acted(others, channel);
    expect(await ownerOf('late')).toBe(lock.owner);
    await lock.release();

    const overstayed = await others.acquire('late', { maxHoldMs: 50 });
    await until(() => overstayed.signal.aborted, { what: 'it was held for too long' });
    await tell(channel, overstayed.owner, overstayed.fencingToken, 'late');
    await acted(others, channel);
    expect(await ownerOf('late')).toBe(overstayed.owner);
    await overstayed.release().catch(() => {});

    const kept = await others.acquire('kept', { holdMs: 20_000 });
    await kept.release();
    await tell(channel, kept.owner, kept.fencingToken, 'kept');
    await acted(others, channel);
    expect(await ownerOf('kept')).toBe(kept.owner);
  });

  it('leaves alone a lock that is just being given back, so that its release does not find it gone [G1057]', async () => {
    const way = await proxyTo(server);
    const { others, lock } = await listening('released', way);
    const channel = channelOf(lock.owner);
    await lock.extend(); // after the confirmation of its grant
    await server.resetCalls();
    way.hold();
    const released = lock.release();
    await tell(channel, lock.owner, lock.fencingToken, 'released');
    const acting = acted(others, channel);
    way.release();
    await acting;
    expect(await released).toBe(true);
    expect(await scriptCalls(server)).toBe(3); // the release, the release of what nobody has, and the question
  });

  it('leaves alone the lock of another process, whichever process sent the message [G1013]', async () => {
    const { locks, others, lock } = await listening('forged');
    const theirs = await locks.acquire('theirs');
    await tell(channelOf(lock.owner), theirs.owner, theirs.fencingToken, 'theirs');
    await acted(others, channelOf(lock.owner));
    expect(await ownerOf('theirs')).toBe(theirs.owner);
  });
});
