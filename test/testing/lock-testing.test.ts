import { Controller, Get, Injectable, Module } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  LockContendedError,
  getLockServiceToken,
  InjectLockService,
  LeaderOnly,
  Locked,
  LockService,
  lockedInterceptorOf,
  LockUnavailableError,
  RedisLockModule,
} from 'nest-redis-lock';
import {
  getLockBenchToken,
  LockBench,
  lockMatchers,
  LockTestingModule,
  withMemoryLocks,
} from 'nest-redis-lock/testing';
import type { LockMatchers } from 'nest-redis-lock/testing';
import { describe, expect, it, onTestFinished } from 'vitest';
import { RecordingLogger } from '../support/nest-app.js';

declare module 'vitest' {
  // oxlint-disable-next-line typescript/no-explicit-any -- as Vitest declares it
  interface Matchers<T = any> extends LockMatchers<T> {}
}

expect.extend(lockMatchers);

@Injectable()
class Orders {
  constructor(
    readonly locks: LockService,
    @InjectLockService('billing') readonly billing: LockService,
  ) {}

  @Locked('order:{0}', { waitMs: 500 })
  async pay(id: string): Promise<string> {
    return `${id} is paid`;
  }

  @Locked('invoice:{0}', { registration: 'billing' })
  async bill(id: string): Promise<string> {
    return `${id} is billed`;
  }
}

@Controller()
class Handlers {
  @Get('orders/:id')
  @Locked('order:{params.id}')
  async ofRequest(): Promise<string> {
    return 'shown';
  }
}

const UNREACHABLE = { redis: 'redis://127.0.0.1:1', connectTimeoutMs: 10 };
const registration = RedisLockModule.forRoot(UNREACHABLE);
const billing = RedisLockModule.forRootAsync({ name: 'billing', useFactory: () => UNREACHABLE });

@Module({ imports: [registration, billing], providers: [Orders], controllers: [Handlers] })
class AppModule {}

describe('LockTestingModule', () => {
  it('LockTestingModule replaces registrations, by name, with a bench for each [G425]', async () => {
    const testing = await Test.createTestingModule({
      imports: [LockTestingModule.forRoot(), LockTestingModule.forRoot({ name: 'billing' })],
      providers: [Orders],
      controllers: [Handlers],
    })
      .setLogger(new RecordingLogger())
      .compile();
    const app = testing.createNestApplication();
    onTestFinished(() => app.close());
    await app.listen(0, '127.0.0.1');
    const [bench, other] = [app.get(LockBench), app.get<LockBench>(getLockBenchToken('billing'))];
    expect([app.get(Orders).locks, app.get(Orders).billing]).toEqual([bench.locks, other.locks]);
    expect(other.locks.registration).toBe('billing');
    expect(app.get(lockedInterceptorOf('billing'))).toBeDefined();

    expect(await app.get(Orders).pay('17')).toBe('17 is paid');
    bench.refuse('order:17', 'contended');
    expect((await fetch(`${await app.getUrl()}/orders/17`)).status).toBe(409);
    bench.refuse('invoice:17', 'unavailable');
    expect(await app.get(Orders).bill('17')).toBe('17 is billed');
    other.refuse('invoice:17', 'unavailable');
    await expect(app.get(Orders).bill('17')).rejects.toThrow('Orders.bill: Lock "invoice:17" could not be acquired');
    expect(bench.journal.map(({ key }) => key)).toEqual(['order:17', 'order:17', 'order:17']);
    expect(other.journal.map(({ event }) => event)).toEqual(['acquired', 'released', 'refused']);
  });

  it('an unused refusal is an error in the log when the application closes, with its key and its line [G597]', async () => {
    const log = new RecordingLogger();
    const testing = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()] })
      .setLogger(log)
      .compile();
    await testing.init();
    const bench = testing.get(LockBench);
    bench.refuse('used', 'contended');
    bench.refuse('misspelt', 'contended');
    bench.refuse('rarely', 'unavailable', { times: 3 });
    for (const key of ['used', 'rarely']) await expect(bench.locks.acquire(key)).rejects.toThrow(`Lock "${key}"`);
    expect(log.lines).toEqual([]);
    await testing.close();
    expect(log.lines).toEqual([
      expect.stringMatching(
        /^error bench\.refuse\("misspelt", 'contended'\) should refuse a call, but no call requested that lock\. .*lock-testing\.test\.ts:\d+:\d+/,
      ),
      expect.stringMatching(
        /^error bench\.refuse\("rarely", 'unavailable'\) should refuse 3 calls, but only 1 requested that lock\. /,
      ),
    ]);
  });
});

it('the services of benches replace the services of an existing application, by name [G426]', async () => {
  const [bench, other] = [new LockBench(), new LockBench({ name: 'billing' })];
  const testing = await Test.createTestingModule({ imports: [AppModule] })
    .overrideProvider(LockService)
    .useValue(bench.locks)
    .overrideProvider(getLockServiceToken('billing'))
    .useValue(other.locks)
    .setLogger(new RecordingLogger())
    .compile();
  const app = testing.createNestApplication();
  await app.listen(0, '127.0.0.1');
  const orders = app.get(Orders);
  expect([await orders.pay('17'), await orders.bill('17')]).toEqual(['17 is paid', '17 is billed']);
  bench.refuse('order:17', 'contended');
  expect((await fetch(`${await app.getUrl()}/orders/17`)).status).toBe(409);
  const lock = await bench.locks.acquire('forgotten');
  await app.close();
  expect(lock.signal.reason).toMatchObject({ reason: 'shutdown' });
  await expect(other.locks.acquire('late')).rejects.toThrow('The application is closing');
});

describe('withMemoryLocks', () => {
  class Plain {
    @InjectLockService('billing') readonly locks!: LockService;

    @Locked('order:{0}')
    async pay(id: string): Promise<string> {
      return `${id} is paid`;
    }

    @LeaderOnly('outbox')
    async relay(): Promise<void> {}
  }
  class More extends Plain {}

  it('withMemoryLocks makes the locked methods of an instance work that was created with new [G427]', async () => {
    await expect(new More().pay('17')).rejects.toThrow('has no LockService');
    const bench = new LockBench();
    const plain = withMemoryLocks(new More(), bench);
    expect(await plain.pay('17')).toBe('17 is paid');
    await plain.relay();
    expect(bench).toHaveLocked('order:17');
    bench.refuse('order:17', 'unavailable');
    await expect(plain.pay('17')).rejects.toBeInstanceOf(LockUnavailableError);
    expect(plain.locks.registration).toBe('billing');
    expect(await withMemoryLocks(new Plain()).pay('18')).toBe('18 is paid');
    expect(() => withMemoryLocks({})).toThrow('which has no method with @Locked or @Limited');
    const orders = withMemoryLocks(new Orders(bench.locks, bench.locks), bench);
    expect([await orders.pay('19'), await orders.bill('19')]).toEqual(['19 is paid', '19 is billed']);
  });
});

it('a refusal on the bench applies to the lock of a tenant by its key with or without the tenant [G1035]', async () => {
  const bench = new LockBench({ scope: () => 'acme' });
  for (const key of ['price:tea', '@acme/price:tea']) {
    bench.refuse(key, 'contended');
    await expect(bench.locks.withLock('price:tea', () => 'sold')).rejects.toThrow(LockContendedError);
    expect(await bench.locks.withLock('price:tea', () => 'sold')).toBe('sold');
  }
  bench.refuse('@globex/price:tea', 'contended');
  expect(await bench.locks.withLock('price:tea', () => 'sold')).toBe('sold');
});

it('the matchers pass and fail, and say what is held, or was acquired [G428]', async () => {
  const bench = new LockBench();
  await bench.locks.withLock('order:17', { ttlMs: 5_000 }, () => {
    expect(bench).toHoldLock('order:17');
    expect(() => expect(bench).toHoldLock('k')).toThrow('expected lock "k" to be held; held: "order:17"');
    expect(() => expect(bench).not.toHoldLock('order:17')).toThrow('expected lock "order:17" not to be held');
  });
  expect(bench).not.toHoldLock('order:17');
  await bench.holdElsewhere('order:17');
  expect(bench).toHoldLock('order:17');

  expect(bench).toHaveLocked('order:17');
  expect(bench).toHaveLocked('order:17', { ttlMs: 5_000 });
  expect(bench).not.toHaveLocked('order:18');
  expect(() => expect(bench).toHaveLocked('order:17', { ttlMs: 6_000 })).toThrow(
    'expected {"key":"order:17","ttlMs":6000} to have been locked; acquired: \n' +
      '  {"event":"acquired","key":"order:17","ttlMs":5000,"waitMs":10000}',
  );
  expect(() => expect(bench).not.toHaveLocked('order:17')).toThrow('not to have been locked');
  for (const matcher of ['toHoldLock', 'toHaveLocked'] as const)
    expect(() => expect('order:17').not[matcher]('order:17')).toThrow(`${matcher} needs a LockBench`);
});
