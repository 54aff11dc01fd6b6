import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { RedisLockSettings } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { counterOn } from '../support/stored.js';
import { Primary, proxyTo } from './primary.js';

/** For waits that end by an answer. */
const PATIENTLY = { count: 1, timeoutMs: 10_000 };
/** For waits that are in vain. */
const BRIEFLY = { count: 1, timeoutMs: 100 };
/** As it stands in the protocol; scripts speak of those who wait, too. */
const WAIT = /\$4\r\nwait\r\n/i;

describe('With waitForReplicas', () => {
  let primary: Primary;

  beforeAll(async () => {
    primary = await Primary.start();
  });
  afterEach(async () => {
    primary.server.resume();
    await primary.letIn();
  });
  afterAll(() => primary.stop());

  const open = (waitForReplicas: RedisLockSettings['waitForReplicas'], settings: RedisLockSettings = {}) =>
    openLocks({ redis: primary.url, commandTimeoutMs: 10_000, waitForReplicas, ...settings });
  const fewer = (of: number, timeoutMs: number) => ({
    code: 'LOCK_UNAVAILABLE',
    causes: [
      expect.objectContaining({ problem: expect.stringContaining(`of ${of} replicas had it within ${timeoutMs} ms`) }),
    ],
  });

  describe('a lock that is acquired', () => {
    it('is known to the replica by then, with its fencing counter', async () => {
      const locks = await open(PATIENTLY);
      for (let round = 0; round < 20; round++) {
        const key = freshKey();
        const lock = await locks.acquire(key);
        expect((await primary.owners(key)).replica).toBe(lock.owner);
        expect(await counterOn(primary.replica)).toBe(lock.fencingToken);
      }
    });

    it('counts from before it was asked for: what the replica took is gone from its lease', async () => {
      const locks = await open(PATIENTLY, { ttlMs: 60_000, watchdog: false });
      await locks.withLock(freshKey(), () => {}); // connected
      primary.cutOff();
      const attempt = locks.acquire(freshKey());
      await primary.isWaitedFor();
      const since = performance.now();
      await until(() => performance.now() - since > 150, { what: 'time has passed' });
      await primary.letIn();
      const lock = await attempt;
      expect(lock.remainingMs).toBeLessThan(60_000 - 600 - 2 - 150);
    });

    it('is known to the replica also when it was handed over by another process', async () => {
      const [holder, waiter] = [await open(PATIENTLY), await open(PATIENTLY)];
      const key = freshKey();
      const held = await holder.acquire(key);
      const attempt = waiter.acquire(key);
      await queued(key);
      await held.release();
      const lock = await attempt;
      expect(await primary.owners(key)).toEqual({ primary: lock.owner, replica: lock.owner });
    });
  });

  describe('a lock that the replica does not get in time', () => {
    it('a lock that the replica does not get in time is refused and given back, and the error says how many replicas had it [G74]', async () => {
      const locks = await open(BRIEFLY);
      primary.cutOff();
      const key = freshKey();
      await expect(locks.acquire(key)).rejects.toMatchObject(fewer(1, 100));
      await primary.isFree(key);
    });

    it('is refused when there are fewer replicas than asked for', async () => {
      const locks = await open({ count: 2, timeoutMs: 1_000 });
      const key = freshKey();
      const refusal = () =>
        locks.acquire(key).then(
          () => 'granted',
          ({ message }: Error) => message,
        );
      const said = '1 of 2 replicas had it within 1000 ms. Check that its replicas';
      await until(async () => (await refusal()).includes(said), { what: 'it is refused, though one replica has it' });
      await primary.isFree(key);
    });

    it('leaves a parcel its time, if it is adopted', async () => {
      const sender = await openLocks({ redis: primary.url });
      const locks = await open(BRIEFLY);
      const key = freshKey();
      const parcel = await (await sender.acquire(key)).detach({ ttlMs: 3_600_000 });
      primary.cutOff();
      await expect(locks.adopt(parcel)).rejects.toMatchObject(fewer(1, 100));
      const holder = async () => (await sender.inspect(key))!;
      await until(async () => (await holder()).holder?.detached, { what: 'the parcel has it again' });
      expect((await holder()).remainingMs).toBeGreaterThan(3_000_000);
      await primary.letIn();
      expect(await sender.release(parcel)).toBe(true);
    });

    it('a lock that was handed over and does not reach the replica in time is refused to the waiter, and goes on to nobody [G75]', async () => {
      const [holder, waiter] = [await open(undefined), await open(BRIEFLY)];
      const key = freshKey();
      const held = await holder.acquire(key);
      const attempt = waiter.acquire(key);
      await queued(key);
      primary.cutOff();
      await held.release();
      await expect(attempt).rejects.toMatchObject(fewer(1, 100));
      await primary.isFree(key);
    });

    it('goes to the next in the queue when it is given back', async () => {
      const [holder, waiter, next] = [await open(undefined), await open(BRIEFLY), await open(undefined)];
      const key = freshKey();
      const held = await holder.acquire(key);
      const attempt = expect(waiter.acquire(key)).rejects.toMatchObject(fewer(1, 100));
      await queued(key, 1);
      const last = next.acquire(key);
      await queued(key, 2);
      primary.cutOff();
      await held.release();
      await attempt;
      expect(await last).toMatchObject({ isHeld: true });
    });
  });

  describe('a wait that ends in a fault is no answer:', () => {
    it('the connection breaks while it waits', async () => {
      const proxy = await proxyTo(primary);
      const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 10_000, waitForReplicas: PATIENTLY });
      const key = freshKey();
      const cut = proxy.cutAfterRequest(WAIT);
      primary.cutOff();
      const attempt = expect(locks.acquire(key)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      await primary.isWaitedFor();
      await primary.letIn(); // the replica has it: but who waits did not hear of it
      await cut;
      await attempt;
      await primary.isFree(key);
    });

    it('the connection breaks for longer, so that the lock cannot be given back at once', async () => {
      const proxy = await proxyTo(primary);
      const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 10_000, waitForReplicas: PATIENTLY });
      const key = freshKey();
      primary.cutOff();
      const attempt = expect(locks.acquire(key)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      await primary.isWaitedFor();
      proxy.refuse();
      proxy.cut();
      await attempt;
      expect((await primary.owners(key)).primary).not.toBeNull();
      await proxy.accept();
      await primary.isFree(key);
    });

    it('a lock whose primary hangs while it waits for replicas is refused [G76]', async () => {
      const locks = await open({ count: 1, timeoutMs: 500 }, { commandTimeoutMs: 1_000 });
      const key = freshKey();
      await locks.isLocked(key); // connected
      primary.cutOff();
      const attempt = expect(locks.acquire(key)).rejects.toThrow('no answer within 1500 ms whether replicas have it');
      await primary.isWaitedFor();
      primary.server.pause();
      await attempt;
      primary.server.resume();
      await primary.isFree(key);
      await primary.letIn();
      await until(async () => (await locks.tryAcquire(key).catch(() => null)) !== null, { what: 'it serves again' });
    });

    it('the primary becomes a replica while it waits', async () => {
      const other = await Primary.start();
      onTestFinished(() => other.stop());
      const locks = await openLocks({ redis: other.url, commandTimeoutMs: 10_000, waitForReplicas: PATIENTLY });
      other.cutOff();
      const attempt = expect(locks.acquire('key')).rejects.toThrow('it is unknown whether replicas have it');
      await other.isWaitedFor();
      await other.server.command('REPLICAOF', '127.0.0.1', primary.server.port);
      await attempt;
    });

    it('the client sends it again, on a connection that has written nothing', async () => {
      const { port } = primary.server;
      const resend = ({ message }: Error) => (message.startsWith('UNBLOCKED') ? 2 : false);
      const redis = {
        host: '127.0.0.1',
        port,
        maxRetriesPerRequest: 20,
        enableOfflineQueue: true,
        reconnectOnError: resend,
      };
      const locks = await openLocks({ redis, commandTimeoutMs: 10_000, waitForReplicas: PATIENTLY });
      primary.cutOff();
      const key = freshKey();
      const attempt = expect(locks.acquire(key)).rejects.toThrow('it is unknown whether replicas have it');
      await primary.server.command('CLIENT', 'UNBLOCK', await primary.isWaitedFor(), 'ERROR');
      await attempt;
      await primary.isFree(key);
    });

    it('the lock was taken away meanwhile', async () => {
      const locks = await open(PATIENTLY);
      primary.cutOff();
      const first = locks.acquire(freshKey());
      await primary.isWaitedFor();
      const key = freshKey();
      const second = expect(locks.acquire(key)).rejects.toThrow('the lock was gone from the primary');
      await until(async () => (await primary.owners(key)).primary, { what: 'the second is granted, too' });
      await primary.server.command('DEL', `lock:{${key}}`);
      await primary.letIn();
      expect(await first).toMatchObject({ isHeld: true });
      await second;
    });
  });

  describe('what it does not promise:', () => {
    it('a primary that restarts without its data takes the lock from its replicas, too; the next token is greater', async () => {
      const other = await Primary.start();
      onTestFinished(() => other.stop());
      const [first, second] = [
        await openLocks({ redis: other.url, commandTimeoutMs: 10_000, waitForReplicas: PATIENTLY }),
        await openLocks({ redis: other.url, commandTimeoutMs: 10_000 }),
      ];
      const lock = await first.acquire('key');
      await other.server.restart();
      await other.letIn();
      expect(await other.owners('key')).toEqual({ primary: null, replica: null });
      const next = await until(() => second.tryAcquire('key').catch(() => null), { what: 'it is connected again' });
      expect(lock.isHeld).toBe(true); // as far as it can know
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    });
  });

  /** So many processes stand in the queue of the lock. */
  function queued(key: string, count = 1): Promise<unknown> {
    return until(async () => (await primary.server.command('ZCOUNT', `lock:{${key}}:queue`, '0', '+inf')) === count, {
      what: `${count} wait for the lock`,
    });
  }
});
