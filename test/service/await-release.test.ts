import { describe, expect, it } from 'vitest';
import type { LockEvent, LockService, WithLockOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { freeOn, redisServer } from '../support/stage.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, openBehindProxy } = await sceneOfFile();

const UNAWAITED = { awaitRelease: false } as const;
/** Longer than it takes to ask the server on another connection. */
const SLOW_MS = 100;

const isHeldOn = async (key: string) => (await server.command('EXISTS', `lock:{${key}}`)) === 1;

/** A service whose commands take a while to reach the server from the moment when its work calls `slow`. */
async function openSlow() {
  const { proxy, locks } = await openBehindProxy({ policies: { quick: UNAWAITED } });
  return { locks, slow: () => (proxy.slowRequestsMs = SLOW_MS) };
}

describe('a call with awaitRelease: false', () => {
  it.each<[what: string, key: string, run: (locks: LockService, key: string, work: () => unknown) => Promise<unknown>]>(
    [
      ['a lock', 'lock', (locks, key, work) => locks.withLock(key, UNAWAITED, work)],
      ['a shared lock', 'readers', (locks, key, work) => locks.withLock(key, { ...UNAWAITED, mode: 'shared' }, work)],
      ['a set', 'set', (locks, key, work) => locks.withLock([key, 'another'], UNAWAITED, work)],
      ['permits', 'permits', (locks, key, work) => locks.withPermits(key, { ...UNAWAITED, limit: 1 }, work)],
      ['a policy', 'policy', (locks, key, work) => locks.withLock(key, { policy: 'quick' }, work)],
    ],
  )(
    'a call with awaitRelease: false for %s returns before its release is answered, and the next call of its process comes after the release [G1120]',
    async (_, key, run) => {
      const { locks, slow } = await openSlow();
      await run(locks, key, slow);
      expect(await isHeldOn(key)).toBe(true);
      const next = await locks.tryAcquire(key);
      expect(next?.isHeld).toBe(true);
      await next?.release();
      expect(await isHeldOn(key)).toBe(false);
    },
  );

  it('releases its lock though its work changes the options', async () => {
    const { locks } = await openSlow();
    const options = { policy: 'quick' };
    await locks.withLock('changed', options, () => void (options.policy = 'unknown'));
    await until(async () => !(await isHeldOn('changed')), { what: 'it is free' });
  });

  it.each<[what: string, options: WithLockOptions]>([
    ['says nothing of it', {}],
    ['says otherwise than its policy', { policy: 'quick', awaitRelease: true }],
  ])('waits for its release where it %s', async (_, options) => {
    const { locks, slow } = await openSlow();
    await locks.withLock('awaited', options, slow);
    expect(await isHeldOn('awaited')).toBe(false);
  });

  it('a call with awaitRelease: false rejects for a loss that is known before its release, and an event reports a loss that only the release finds [G1121]', async () => {
    const locks = await open();
    const lost: LockEvent[] = [];
    locks.events$.subscribe((event) => event.type === 'lost' && lost.push(event));
    const result = await locks.withLock('found late', UNAWAITED, async () => {
      await server.command('DEL', 'lock:{found late}');
      return 'done';
    });
    expect([result, lost]).toEqual(['done', []]);
    await until(() => lost.length > 0, { what: 'the release has found the loss' });
    expect(lost).toMatchObject([{ key: 'found late', reason: 'expired' }]);
    const known = locks.withLock('known', UNAWAITED, async (lock) => {
      await server.command('DEL', 'lock:{known}');
      await lock.extend().catch(() => {});
      return 'done';
    });
    await expect(known).rejects.toMatchObject({ code: 'LOCK_LOST', outcome: { status: 'fulfilled', value: 'done' } });
  });

  it('a call with awaitRelease: false waits while its release cannot be sent: until its lock is detached [G1124]', async () => {
    const { locks, slow } = await openSlow();
    const settled: string[] = [];
    let detaching: Promise<unknown> | undefined;
    await locks.withLock('detached', UNAWAITED, (lock) => {
      slow();
      detaching = lock.detach({ ttlMs: 60_000 }).then(() => settled.push('detached'));
    });
    settled.push('returned');
    await detaching;
    expect(settled).toEqual(['detached', 'returned']);
  });

  it('a call with awaitRelease: false whose release is not answered returns its result, an event reports it, and the release is repeated [G1122]', async () => {
    const own = await redisServer();
    const locks = await openLocks({ redis: own.url, commandTimeoutMs: 200 });
    const failed: LockEvent[] = [];
    locks.events$.subscribe((event) => event.type === 'release-failed' && failed.push(event));
    const result = await locks.withLock('unanswered', UNAWAITED, () => {
      own.pause();
      return 'done';
    });
    expect([result, failed]).toEqual(['done', []]);
    await until(() => failed.length > 0, { what: 'the release has failed' });
    expect(failed).toMatchObject([{ key: 'unanswered' }]);
    own.resume();
    await freeOn([own], 'unanswered');
  });

  it('an application that closes waits for releases that no call waits for [G1123]', async () => {
    const { locks, slow } = await openSlow();
    await locks.withLock('at the end', UNAWAITED, slow);
    expect(await isHeldOn('at the end')).toBe(true);
    await locks.onApplicationShutdown();
    expect(await isHeldOn('at the end')).toBe(false);
  });
});
