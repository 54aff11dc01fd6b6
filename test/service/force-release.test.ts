import { afterAll, beforeAll, expect, it } from 'vitest';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { freeOn } from '../support/stage.js';
import { until } from '../support/until.js';

let servers: RedisServer[];
beforeAll(async () => {
  servers = await Promise.all([RedisServer.start(), RedisServer.start(), RedisServer.start()]);
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));

it.each<[string, () => RedisLockModuleOptions]>([
  ['one Redis', () => ({ redis: servers[0]!.url })],
  ['a Redlock', () => ({ redlock: servers.map(({ url }) => url), admission: false })],
  ['memory', () => ({ memory: true })],
])('a lock is taken by force only from the holder that was shown (%s) [G415]', async (_store, options) => {
  const locks = await openLocks(options());
  const key = `shown ${_store}`;
  const first = await locks.acquire(key);
  const shown = await locks.inspect(key);
  expect(shown!.digest).toMatch(/^[0-9a-f]{16}$/);
  expect(first.owner).not.toContain(shown!.digest);
  await first.release();
  await freeOn(servers, key); // also on the slowest node of a Redlock
  expect(await locks.forceRelease(key, { owner: shown!.digest })).toBe(false);

  const second = await locks.acquire(key);
  expect(await locks.forceRelease(key, { owner: shown!.digest })).toBe(false);
  expect(second.isHeld).toBe(true);

  const waiting = locks.acquire(key);
  const now = await locks.inspect(key);
  expect(await locks.forceRelease(key, { owner: now!.digest })).toBe(true);
  expect(second.isHeld).toBe(false);
  expect(second.signal.reason).toMatchObject({ code: 'LOCK_LOST' });
  await (await waiting).release();
  await expect(locks.forceRelease(key, { owner: undefined })).rejects.toThrow('owner must be the digest');
  await expect(locks.forceRelease(key, { owner: now!.holder.owner })).rejects.toThrow('owner must be the digest');
  await expect(locks.forceRelease(key, { force: true } as never)).rejects.toThrow('no option "force"');
  await expect(locks.forceRelease(key, now!.digest as never)).rejects.toThrow('options must be an object: got "');
});

it.each<[string, () => RedisLockModuleOptions]>([
  ['one Redis', () => ({ redis: servers[0]!.url })],
  ['a Redlock', () => ({ redlock: servers.map(({ url }) => url), admission: false })],
])('a holder elsewhere that listens learns at once that it was taken from it (%s) [G408]', async (store, options) => {
  const [locks, others] = await Promise.all([openLocks(options()), openLocks(options())]);
  const key = `listens ${store}`;
  const before = await others.acquire(key);
  const acquiring = locks.acquire(key); // its process listens from now on
  await until(async () => (await others.inspect(key))?.waitingProcesses?.length, { what: 'it waits' });
  await before.release();
  const held = await acquiring;
  const { digest } = (await others.inspect(key))!;
  expect(await others.forceRelease(key, { owner: digest })).toBe(true);
  await until(() => held.signal.aborted, { what: 'its signal aborts', timeoutMs: 5_000 }); // its next extension is in 10 s
  expect(held.signal.reason).toMatchObject({ reason: 'forced' });
});

it.each<[string, () => RedisLockModuleOptions]>([
  ['one Redis', () => ({ redis: servers[0]!.url })],
  ['a Redlock', () => ({ redlock: servers.map(({ url }) => url), admission: false })],
  ['memory', () => ({ memory: true })],
])(
  'a lock that this process has taken by force was lost because it was forced, and so says all that tells of it (%s) [G507]',
  async (store, options) => {
    const locks = await openLocks(options());
    const key = `reason ${store}`;
    const reasons: string[] = [];
    locks.events$.subscribe((event) => event.type === 'lost' && reasons.push(event.reason));
    const leader = locks.leader(`led ${store}`);
    leader.state$.subscribe((state) => state.status === 'ending' && reasons.push(state.reason));
    await until(() => leader.isLeader, { what: 'it leads' });
    const working = locks.withLock(key, async (lock) => {
      await locks.forceRelease(key);
      expect(() => lock.assertHeld()).toThrow('is no longer held (forced): it was taken by force, with forceRelease. ');
    });
    await expect(working).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'forced' });
    await locks.forceRelease(leader.key);
    await until(() => reasons.length >= 3, { what: 'both losses, and the end of the term' });
    expect(reasons).toEqual(['forced', 'forced', 'forced']);
  },
);

/** A service that holds the lock of the key, and listens, as it has waited for that lock. */
async function listening(key: string) {
  const options = { redis: servers[0]!.url };
  const [locks, others] = await Promise.all([openLocks(options), openLocks(options)]);
  const before = await others.acquire(key);
  const acquiring = locks.acquire(key);
  await until(async () => (await others.inspect(key))?.waitingProcesses?.length, { what: 'it waits' });
  await before.release();
  return { locks, others, held: await acquiring };
}

it('a holder that listens says so, too, if another has the lock by the time it looks', async () => {
  const { others, held } = await listening('taken over');
  const next = others.acquire('taken over', { waitMs: 30_000 });
  await until(async () => (await others.inspect('taken over'))?.waitingProcesses?.length, { what: 'another waits' });
  await others.forceRelease('taken over');
  await until(() => held.signal.aborted, { what: 'its signal aborts' });
  expect(held.signal.reason).toMatchObject({ reason: 'forced' });
  await (await next).release();
});

it('a holder that does not listen says what its next extension finds: the lock is gone, or has another owner', async () => {
  const options = { redis: servers[0]!.url };
  const [locks, others] = await Promise.all([openLocks(options), openLocks(options)]);
  const [gone, stolen] = [await locks.acquire('gone'), await locks.acquire('has another')];
  await others.forceRelease('gone');
  await others.forceRelease('has another');
  const next = await others.acquire('has another');
  await expect(gone.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
  await expect(stolen.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'stolen' });
  await next.release();
});

it('a message of a forced release that did not happen ends no lock, and does not tell why it is lost later', async () => {
  const { held } = await listening('hoax');
  const [server] = servers;
  const channels = (await server!.command('PUBSUB', 'CHANNELS', 'lock:inbox:*')) as string[];
  const ofHolder = held.owner.slice(0, held.owner.lastIndexOf('/'));
  const channel = channels.find((each) => each.endsWith(ofHolder));
  await held.extend(); // the lock was handed over: its first extension may still be on its way
  await server!.resetCalls();
  await server!.command('PUBLISH', channel!, `${held.owner} taken hoax`);
  await until(async () => ((await server!.calls()).pexpire ?? 0) > 0, { what: 'it looks, by an extension' });
  await held.extend(); // when it has looked
  expect(held.isHeld).toBe(true);
  await server!.command('DEL', 'lock:{hoax}');
  await expect(held.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
});
