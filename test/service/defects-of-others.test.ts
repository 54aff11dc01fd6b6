import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { membersOn, timeOn } from '../support/stored.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

// Defects of other read/write locks and semaphores, which this library does not have. For Redis, each service is a
// separate process.

const SHARED = { mode: 'shared' } as const;
const PATIENT = { waitMs: 600_000 };
const HOUR_MS = 3_600_000;

const { server, open, openBehindProxy, untilQueued } = await sceneOfFile();

const openSeveral = (count: number) => Promise.all(Array.from({ length: count }, () => open()));
const holders = async (key: string) => (await membersOn(server, key)).map(({ owner }) => owner);
const waiting = async (key: string): Promise<string[]> =>
  (await server.command('ZRANGE', `lock:{${key}}:queue`, '0', '+inf', 'BYSCORE')) as string[];

/** Calls that wait to share the lock, one of each service, in this order in its queue. */
async function readersBehind(key: string, services: readonly LockService[], before: number) {
  const calls = [];
  for (const [at, locks] of services.entries()) {
    calls.push(locks.acquire(key, { ...SHARED, ...PATIENT }));
    await untilQueued(key, before + at + 1);
  }
  return calls;
}

describe('a lock that is shared', () => {
  it('lets in the waiting readers of all processes in the step that downgrades its writer, not when they ask again [G917]', async () => {
    const [writing, ...reading] = await openSeveral(4);
    const writer = await writing!.acquire('downgrade');
    const calls = await readersBehind('downgrade', reading, 0);
    const reader = await writer.downgrade();
    expect(await holders('downgrade')).toHaveLength(4); // without a command of the waiting services
    const all = [reader, ...(await Promise.all(calls))];
    expect(new Set(all.map(({ fencingToken }) => fencingToken)).size).toBe(1);
  });

  it('lets in the waiting readers of all processes in the step that releases its writer, all at once [G919]', async () => {
    const [writing, next, ...reading] = await openSeveral(7);
    const writer = await writing!.acquire('together');
    const calls = await readersBehind('together', reading, 0);
    const last = next!.acquire('together', PATIENT);
    await untilQueued('together', 6);
    await writer.release();
    expect(await holders('together')).toHaveLength(5);
    const readers = await Promise.all(calls);
    expect(readers.map(({ isHeld }) => isHeld)).toEqual([true, true, true, true, true]);
    await Promise.all(readers.map((reader) => reader.release()));
    expect((await last).fencingToken).toBeGreaterThan(readers[0]!.fencingToken);
  });

  it('lasts for one ttl after nested calls, in any mode, as it would without them: their times do not add up [G918]', async () => {
    const locks = await open();
    const timed = { ttlMs: 60_000, watchdog: false };
    const leftMs = async () => Number(await server.command('PTTL', 'lock:{nested}'));
    for (const mode of ['exclusive', 'shared'] as const) {
      const outer = { ...timed, mode };
      await locks.withLock('nested', outer, () =>
        locks.withLock('nested', { ...timed, ...SHARED }, () =>
          locks.withLock('nested', outer, async ({ remainingMs }) => {
            expect(await leftMs()).toBeLessThanOrEqual(60_000);
            expect(remainingMs).toBeLessThanOrEqual(60_000);
          }),
        ),
      );
      expect(await locks.inspect('nested')).toBeNull();
    }
  });

  it('is not held by a writer together with readers when its grant came earlier and its confirmation comes late [G920]', async () => {
    const [holding, reading] = await openSeveral(2);
    const { proxy, locks: late } = await openBehindProxy({ commandTimeoutMs: 60_000 });
    const holder = await holding!.acquire('stale');
    const writing = late.acquire('stale', PATIENT);
    await untilQueued('stale');
    const [read] = await readersBehind('stale', [reading!], 1);
    proxy.hold(); // it is notified of its turn, and Redis gets nothing more from it
    await holder.release();
    const writer = await writing; // it has begun, and its confirmation fails
    const reader = await read!;
    expect([writer.isHeld, writer.signal.aborted]).toEqual([false, true]);
    proxy.release();
    expect(await writer.release()).toBe(false); // after what it had sent before
    expect(reader.isHeld).toBe(true);
    expect(await holders('stale')).toEqual([reader.owner]);
    expect(await reader.release()).toBe(true);
  });

  it.each([
    ['has waited for its time', () => {}, 5_000],
    ['was aborted', (controller: AbortController) => controller.abort(new Error('gone')), PATIENT.waitMs],
  ])(
    'lets in the readers behind a writer that %s in the step in which the writer leaves [G921]',
    async (_why, end, waitMs) => {
      const [holding, giving, ...reading] = await openSeveral(4);
      const key = `withdrawn ${waitMs}`;
      const reader = await holding!.acquire(key, SHARED);
      const controller = new AbortController();
      const writing = giving!.acquire(key, { waitMs, signal: controller.signal });
      const refused = expect(writing).rejects.toThrow();
      await untilQueued(key);
      const calls = await readersBehind(key, reading, 1);
      end(controller);
      await refused;
      const left = await until(
        async () => {
          const entries = await waiting(key);
          return entries.some((entry) => entry.startsWith('g')) ? undefined : { entries };
        },
        { what: 'the writer has left the queue' },
      );
      expect(left.entries).toEqual([]);
      for (const call of calls) expect((await call).fencingToken).toBe(reader.fencingToken);
      expect(reader.isHeld).toBe(true);
    },
  );
});

describe('permits', () => {
  it('that were held for longer than the ttl of another call are not freed by that call [G923]', async () => {
    const [locks, short] = await openSeveral(2);
    const held = await locks!.acquirePermits('short', { limit: 2, ttlMs: HOUR_MS, watchdog: false });
    await sleep(300);
    const brief = { limit: 2, ttlMs: 100, watchdog: false };
    const one = await short!.acquirePermits('short', brief);
    await expect(short!.tryAcquirePermits('short', brief)).resolves.toBeNull();
    await one.release();
    const other = await short!.acquirePermits('short', brief);
    await until(() => !other.isHeld, { what: 'its ttl has passed' });
    await expect(short!.acquirePermits('short', { ...brief, permits: 2, waitMs: 500 })).rejects.toMatchObject({
      code: 'LOCK_CONTENDED',
    });
    expect(await holders('short')).toContain(held.owner);
    expect(Number(await server.command('PTTL', 'lock:{short}'))).toBeGreaterThan(HOUR_MS / 2);
    expect(await held.release()).toBe(true);
  });

  it('of attempts that have failed, as their answer was lost, are all given back: none is left without a holder [G924]', async () => {
    const { proxy, locks: cutOff } = await openBehindProxy({ commandTimeoutMs: 200 });
    const others = await open();
    await cutOff.withPermits('orphans', { limit: 6 }, () => {});
    const first = await others.acquirePermits('orphans', { limit: 6, permits: 6, ttlMs: HOUR_MS });
    const wants = { limit: 6, ttlMs: HOUR_MS };
    const calls = [1, 2, 3].map(() => cutOff.acquirePermits('orphans', { ...wants, permits: 2, ...PATIENT }));
    await untilQueued('orphans');
    proxy.dropReplies();
    await first.release(); // the first gets its permits, asks for the others, and gets no answer
    const outcomes = await Promise.allSettled(calls);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    proxy.passReplies();
    const all = await others.acquirePermits('orphans', { ...wants, permits: 6 });
    expect(await holders('orphans')).toEqual([all.owner]);
    expect(await all.release()).toBe(true);
  });

  it('are not taken in part by calls that wait for several: two such calls do not wait for each other [G925]', async () => {
    const [holding, one, other] = await openSeveral(3);
    const wants = { limit: 3, permits: 2 };
    const held = await holding!.acquirePermits('parts', wants);
    const order: string[] = [];
    const calls = [one!.withPermits('parts', { ...wants, ...PATIENT }, () => void order.push('one'))];
    await untilQueued('parts');
    calls.push(other!.withPermits('parts', { ...wants, ...PATIENT }, () => void order.push('other')));
    await untilQueued('parts', 2);
    expect((await holding!.inspect('parts'))?.permits).toEqual({ held: 2, limit: 3 });
    await held.release();
    await Promise.all(calls);
    expect(order).toEqual(['one', 'other']);
    expect(await holding!.inspect('parts')).toBeNull();
  });
});

const TTL_MS = 4_000;
const READ = { mode: 'shared', ttlMs: TTL_MS } as const;

/** A service that can be cut off for good: for Redis and for others, this is the same as death. */
async function mortal() {
  const { proxy, locks } = await openBehindProxy();
  return { locks, die: () => proxy.stop() };
}
const endOf = async (key: string, owner: string) =>
  (await membersOn(server, key)).find((member) => member.owner === owner)!.endsAt;
const ownersOf = async (locks: LockService, key: string) =>
  (await locks.inspect(key))?.holders.map(({ holder }) => holder.owner) ?? [];

it('a reader that is killed keeps a writer away until its ttl is over, not longer while others extend theirs, and the others do not notice [G911]', async () => {
  const locks = await open();
  const dying = await mortal();
  const readers = [dying.locks, ...(await Promise.all([1, 2, 3, 4].map(() => open())))];
  const leases = await Promise.all(readers.map((reader) => reader.acquire('left', READ)));
  const renewing = await Promise.all(readers.map((reader) => reader.acquire('renewed', READ)));
  expect(new Set(leases.map(({ fencingToken }) => fencingToken)).size).toBe(1);
  await dying.die();
  const endsAt = await endOf('left', leases[0]!.owner);
  const alsoEndsAt = await endOf('renewed', renewing[0]!.owner);

  // The others release this one at once: the writer gets it when the time of the dead reader has passed.
  const writing = locks.acquire('left', PATIENT);
  await untilQueued('left');
  for (const lease of leases.slice(1)) expect(await lease.release()).toBe(true);
  const writer = await writing;
  expect(await timeOn(server)).toBeGreaterThan(endsAt);
  expect(writer.fencingToken).toBeGreaterThan(leases[0]!.fencingToken);

  // And they continue to hold this one, for much longer.
  const waits = locks.acquire('renewed', PATIENT);
  const renewed = async () =>
    (await membersOn(server, 'renewed')).filter((member) => member.endsAt > alsoEndsAt + TTL_MS);
  await until(async () => (await renewed()).length === 4, { what: 'all others have extended theirs' });
  expect(await ownersOf(locks, 'renewed')).toHaveLength(4);
  for (const lease of renewing.slice(1)) {
    expect(lease.isHeld).toBe(true);
    expect(await lease.release()).toBe(true);
  }
  expect((await waits).isHeld).toBe(true);
});

it('a writer that is killed while it waits lets in the readers behind it, next to the current readers [G912]', async () => {
  const [first, behind, dying] = [await open(), await open(), await mortal()];
  const reader = await first.acquire('writer', { mode: 'shared' });
  dying.locks.acquire('writer', PATIENT).catch(() => {});
  await untilQueued('writer');
  const waits = behind.acquire('writer', { mode: 'shared', ...PATIENT });
  await untilQueued('writer', 2);
  await dying.die();
  const next = await waits;
  expect(reader.isHeld).toBe(true);
  expect(next.fencingToken).toBe(reader.fencingToken);
  expect((await ownersOf(first, 'writer')).sort()).toEqual([reader.owner, next.owner].sort());
});

it('the permits of a process that is killed are free when its ttl is over, and not before [G913]', async () => {
  const [locks, dying] = [await open(), await mortal()];
  const stays = await locks.acquirePermits('killed', { limit: 3 });
  const { owner } = await dying.locks.acquirePermits('killed', { limit: 3, permits: 2, ttlMs: TTL_MS });
  await dying.die();
  const endsAt = await endOf('killed', owner);
  const next = await locks.acquirePermits('killed', { limit: 3, permits: 2, ...PATIENT });
  expect(await timeOn(server)).toBeGreaterThan(endsAt);
  expect(stays.isHeld).toBe(true);
  expect((await locks.inspect('killed'))?.permits).toEqual({ held: 3, limit: 3 });
  expect(await next.release()).toBe(true);
});
