import 'reflect-metadata';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { LockContendedError, Locked, LockLostError, LockService } from 'nest-redis-lock';
import { LockBench, lockMatchers, LockTestingModule, type LockMatchers } from 'nest-redis-lock/testing';

// Runs in the same two projects of Jest as fake-timers.spec.ts.

declare module 'expect' {
  interface Matchers<R> extends LockMatchers<R> {}
}

expect.extend(lockMatchers);

@Injectable()
class Orders {
  constructor(readonly locks: LockService) {}

  @Locked('order:{0}')
  async pay(id: string, work: () => unknown = () => {}): Promise<string> {
    await work();
    return id;
  }
}

let testing: TestingModule;
let bench: LockBench;
let orders: Orders;
beforeEach(async () => {
  testing = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [Orders] }).compile();
  bench = testing.get(LockBench);
  orders = testing.get(Orders);
});
afterEach(() => testing.close());

describe('the testing kit', () => {
  it('hands over a lock that was held elsewhere', async () => {
    const other = await bench.holdElsewhere('order:17');
    const paying = orders.pay('17');
    await other.release();
    expect(await paying).toBe('17');
  });

  it('refuses calls, and loses locks', async () => {
    bench.refuse('order:17', 'contended');
    await expect(orders.pay('17')).rejects.toBeInstanceOf(LockContendedError);
    await expect(orders.pay('17', () => bench.lose('order:17'))).rejects.toBeInstanceOf(LockLostError);
    expect(bench.journal.map(({ event }) => event)).toEqual(['refused', 'acquired', 'lost']);
  });

  it('has matchers', async () => {
    await orders.pay('17', () => expect(bench).toHoldLock('order:17'));
    expect(bench).not.toHoldLock('order:17');
    expect(bench).toHaveLocked('order:17', { ttlMs: 30_000 });
    expect(() => expect(bench).toHaveLocked('order:18')).toThrow('expected {"key":"order:18"} to have been locked');
  });
});
