import { expect, it } from 'vitest';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { fromPromises } from 'nest-redis-lock/testing';
import { ToyBackend } from '../contract/toy-backend.js';
import { now } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { openLocks, serviceOn } from '../support/open-locks.js';
import { freeOn, serversOfFile } from '../support/stage.js';
import { until } from '../support/until.js';

const servers = await serversOfFile(3);
const STORES: [name: string, options: () => RedisLockModuleOptions][] = [
  ['one Redis', () => ({ redis: servers[0]!.url })],
  ['a Redlock', () => ({ redlock: servers.map(({ url }) => url), admission: false })],
  ['memory', () => ({ memory: true })],
];

it.each(STORES)('a lock is taken by force only from the holder that was shown (%s) [G415]', async (_store, options) => {
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

it.each(STORES.slice(0, 2))(
  'a holder elsewhere that listens learns at once that it was taken from it (%s) [G408]',
  async (store, options) => {
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
  },
);

it.each(STORES)(
  'a lock that this process has taken by force was lost because it was forced, and all that reports the loss says so (%s) [G507]',
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

/** A store that executes a forced release only when a gate is open, and may lose the request, or its answer. */
class SlowToForce extends ToyBackend {
  readonly gate = new Gate();
  loses?: 'request' | 'answer';
  isAsked = false;

  constructor() {
    super(now, 0);
  }

  override async forceRelease(key: string, from?: string) {
    this.isAsked = true;
    await this.gate.opened;
    const taken = this.loses === 'request' ? undefined : await super.forceRelease(key, from);
    if (this.loses) throw new Error(`the ${this.loses} is lost`);
    return taken;
  }

  /** Somebody deletes the lock by hand. */
  delete(key: string): Promise<unknown> {
    return super.forceRelease(key);
  }
}

/** A lock is passed on to the next call of its process during a forced release. */
async function passedOnMeanwhile() {
  const store = new SlowToForce();
  const locks = serviceOn(fromPromises(store, now, 60_000));
  const [before, acquiring, waiting] = [1, 2, 3].map(() => locks.acquire('key'));
  await (await before!).release();
  const first = await acquiring!;
  const { digest } = (await locks.inspect('key'))!;
  const forcing = locks.forceRelease('key', { owner: digest });
  await until(() => store.isAsked, { what: 'the store is asked' });
  await first.release();
  const second = await waiting!;
  expect(second.owner).toBe(first.owner);
  return { store, forcing, second };
}

it('a lock that was passed on during a failed forced release does not count as forced when it is lost later', async () => {
  const { store, forcing, second } = await passedOnMeanwhile();
  await store.delete('key');
  store.gate.open();
  expect(await forcing).toBe(false);
  await expect(second.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
});

it('a lock that the store still has because a forced release was lost does not count as forced when it is lost later', async () => {
  const { store, forcing, second } = await passedOnMeanwhile();
  store.loses = 'request';
  store.gate.open();
  await expect(forcing).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await second.extend(); // after the question whether it was taken
  await store.delete('key');
  await expect(second.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
});
