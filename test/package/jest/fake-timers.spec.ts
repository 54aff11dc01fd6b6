import 'reflect-metadata';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { LockContendedError, Locked, LockService, RedisLockModule } from 'nest-redis-lock';

// Runs in two projects of Jest: with timers that are fake from the start, and with timers that each test fakes. Jest fakes
// all of them: nextTick, queueMicrotask, setImmediate and performance, too.

@Injectable()
class Orders implements OnApplicationBootstrap, OnModuleDestroy {
  running = 0;
  mostRunning = 0;
  private leading?: Promise<void>;

  constructor(readonly locks: LockService) {}

  onApplicationBootstrap(): void {
    this.leading = this.lead();
  }

  /** The hook of the lock module has run before it. */
  async onModuleDestroy(): Promise<void> {
    await this.leading;
  }

  @Locked('leader')
  private async lead(): Promise<void> {
    const { closing } = this.locks.current();
    await new Promise((resolve) => closing.addEventListener('abort', resolve));
  }

  @Locked('order:{0}')
  async pay(id: string): Promise<string> {
    this.mostRunning = Math.max(this.mostRunning, ++this.running);
    await Promise.resolve();
    this.running--;
    return id;
  }
}

let testing: TestingModule;
let locks: LockService;
beforeEach(async () => {
  testing = await Test.createTestingModule({
    imports: [RedisLockModule.forRoot({ memory: true, shutdownTimeoutMs: 0 })],
    providers: [Orders],
  }).compile();
  await testing.init();
  locks = testing.get(LockService);
  jest.useFakeTimers();
});
afterEach(() => testing.close());

describe('under fake timers', () => {
  it('locks can be acquired, extended and released', async () => {
    const lock = await locks.acquire('k');
    await lock.extend();
    expect(await locks.isLocked('k')).toBe(true);
    expect(await lock.release()).toBe(true);
    expect(await locks.withLock('k', ({ isHeld }) => isHeld)).toBe(true);
  });

  it('methods that are locked run one after the other', async () => {
    const orders = testing.get(Orders);
    const calls = Array.from({ length: 10 }, () => orders.pay('17'));
    expect(await Promise.all(calls)).toEqual(Array.from({ length: 10 }, () => '17'));
    expect(orders.mostRunning).toBe(1);
  });

  it('a call that tries once learns that the lock is held', async () => {
    const lock = await locks.acquire('k');
    expect(await locks.tryAcquire('k')).toBeNull();
    await expect(locks.acquire('k', { waitMs: 0 })).rejects.toBeInstanceOf(LockContendedError);
    await lock.release();
  });

  it('a call that waits is served by the release, or gives up when the time is advanced', async () => {
    const lock = await locks.acquire('k');
    const [first, second] = [locks.acquire('k', { waitMs: 2_000 }), locks.acquire('k', { waitMs: 1_000 })];
    jest.advanceTimersByTime(1_000);
    await expect(second).rejects.toBeInstanceOf(LockContendedError);
    await lock.release();
    expect(await (await first).release()).toBe(true);
  });

  it('a lock is kept, however far the time or the date is set ahead', async () => {
    const lock = await locks.acquire('k', { ttlMs: 1_000 });
    jest.advanceTimersByTime(60_000);
    jest.setSystemTime(Date.now() + 3_600_000);
    expect([lock.isHeld, lock.signal.aborted]).toEqual([true, false]);
    expect(await lock.release()).toBe(true);
  });

  it('events come, and servers are examined', async () => {
    const events: string[] = [];
    locks.events$.subscribe(({ type }) => events.push(type));
    await locks.withLock('k', () => {});
    await locks.tryAcquire('leader');
    await locks.diagnose();
    expect(events).toEqual(['acquired', 'released', 'contended']);
  });

  it('the application closes while a lock is held', async () => {
    const lock = await locks.acquire('forgotten');
    await testing.close();
    expect(lock.signal.reason).toMatchObject({ reason: 'shutdown' });
  });
});
