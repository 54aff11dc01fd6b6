import { expect, it } from 'vitest';
import type { LockEvent, LockLostError, LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { redisServer } from '../support/stage.js';
import { eventsOf, sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open } = await sceneOfFile();

const TTL_MS = 1_200;
/** A third of the ttl, plus the delay of a busy machine: still before the deadline. */
const TOLD_WITHIN_MS = TTL_MS * 0.9;

/** Does something to a held lock, and returns when and why its holder lost it. */
async function loses(
  locks: LockService,
  key: string,
  happen: () => unknown,
): Promise<Pick<LockLostError, 'reason' | 'cause'> & { afterMs: number }> {
  const lock = await locks.acquire(key, { ttlMs: TTL_MS });
  const lost = new Promise<LockLostError>((resolve) => {
    lock.signal.addEventListener('abort', () => resolve(lock.signal.reason));
  });
  const startedAt = performance.now();
  await happen();
  const { reason, cause } = await lost;
  const afterMs = performance.now() - startedAt;
  expect(lock.isHeld).toBe(false);
  expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'LOCK_LOST', key, reason }));
  return { reason, cause, afterMs };
}

it('a holder whose key was deleted learns of the loss within about a third of the ttl [G39]', async () => {
  const locks = await open();
  const { reason, afterMs } = await loses(locks, 'deleted', () => server.command('DEL', 'lock:{deleted}'));
  expect(reason).toBe('expired');
  expect(afterMs).toBeLessThan(TOLD_WITHIN_MS);
  expect(await server.keys('lock:{deleted}')).toEqual([]);
});

it('a holder whose key was replaced learns of the loss within about a third of the ttl, and its release leaves the key to the other [G40]', async () => {
  const locks = await open();
  const working = locks.withLock('replaced', { ttlMs: TTL_MS }, async (lock) => {
    await server.command('SET', 'lock:{replaced}', 'other', 'PX', 60_000);
    const startedAt = performance.now();
    await until(() => lock.signal.aborted, { what: 'the holder knows' });
    expect(performance.now() - startedAt).toBeLessThan(TOLD_WITHIN_MS);
  });
  await expect(working).rejects.toMatchObject({ reason: 'stolen', outcome: { status: 'fulfilled' } });
  expect(await server.command('GET', 'lock:{replaced}')).toBe('other');
});

it('a holder whose key was taken by FLUSHALL learns of the loss within about a third of the ttl, and tokens keep growing [G14]', async () => {
  const own = await redisServer();
  const [locks, others] = [await openLocks({ redis: own.url }), await openLocks({ redis: own.url })];
  const before = await locks.acquire('flushed', { ttlMs: TTL_MS });
  await before.release();
  const { reason, afterMs } = await loses(locks, 'flushed', () => own.command('FLUSHALL'));
  expect(reason).toBe('expired');
  expect(afterMs).toBeLessThan(TOLD_WITHIN_MS);
  expect((await others.acquire('flushed')).fencingToken).toBeGreaterThan(before.fencingToken + 1);
});

it.each([
  ['deleted', ['DEL']],
  ['replaced', ['SET', 'a person', 'PX', '300']],
])(
  'a holder whose key was %s learns of the loss from the release, even if that asks for the next call in the same step [G643]',
  async (what, [command, ...value]) => {
    const locks = await open({ cohortMs: 0 });
    const lost: LockEvent[] = [];
    locks.events$.subscribe((event) => event.type === 'lost' && lost.push(event));
    const key = `${what} before others`;
    const lock = await locks.acquire(key);
    const waiting = locks.acquire(key);
    await server.command(command!, `lock:{${key}}`, ...value);
    expect(await lock.release()).toBe(false);
    expect(lost).toMatchObject([{ key, owner: lock.owner, reason: 'expired' }]);
    expect(await (await waiting).release()).toBe(true);
  },
);

it('a holder whose key was deleted a moment before its work ended learns of the loss from the release [G41]', async () => {
  const locks = await open();
  const working = locks.withLock('at-the-end', () => server.command('DEL', 'lock:{at-the-end}'));
  await expect(working).rejects.toMatchObject({
    code: 'LOCK_LOST',
    reason: 'expired',
    outcome: { status: 'fulfilled', value: 1 },
  });
});

it('a holder whose Redis is stopped keeps the lock until its deadline, then loses it as unavailable, and leaves no key [G38]', async () => {
  const own = await redisServer();
  const locks = await openLocks({ redis: own.url, commandTimeoutMs: 200 });
  const { reason, cause, afterMs } = await loses(locks, 'stopped', () => own.pause());
  expect(reason).toBe('unavailable');
  expect(cause).toMatchObject({ node: `127.0.0.1:${own.port}` });
  expect(afterMs).toBeLessThan(TTL_MS + 1_500);
  own.resume();
  await until(async () => (await own.keys('lock:{stopped}')).length === 0, { what: 'the key is gone' });
});

it('a holder whose Redis is stopped for less than the ttl does not lose the lock [G48]', async () => {
  const own = await redisServer();
  const locks = await openLocks({ redis: own.url, commandTimeoutMs: 200 });
  const events = eventsOf(locks);
  const lock = await locks.acquire('a-moment', { ttlMs: 2_400 });
  own.pause();
  await until(() => events.some(({ type }) => type === 'extension-failed'), { what: 'an extension has failed' });
  own.resume();
  const before = lock.remainingMs;
  await until(() => lock.remainingMs > before, { what: 'a later extension has succeeded' });
  expect(events.map(({ type }) => type)).not.toContain('lost');
  expect(await lock.release()).toBe(true);
});
