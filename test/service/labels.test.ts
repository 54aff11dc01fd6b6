import { describe, expect, it } from 'vitest';
import { Locked, type LockEvent, lockKey, type LockService } from 'nest-redis-lock';
import { makeApp } from '../support/nest-app.js';
import { openLocks } from '../support/open-locks.js';
import { eventsOf, sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { open, untilQueued } = await sceneOfFile();

const nothing = () => Promise.resolve();
type EventOf<Type extends LockEvent['type']> = Extract<LockEvent, { type: Type }>;

function recordsOf(locks: LockService) {
  const events = eventsOf(locks);
  const of = <Type extends LockEvent['type']>(type: Type) =>
    events.filter((event): event is EventOf<Type> => event.type === type);
  return { of, came: (type: LockEvent['type'], count = 1) => until(() => of(type).length >= count, { what: type }) };
}

describe('labels', () => {
  it('are the option, or the first part of the key, in each event of a lock [G410]', async () => {
    const [locks, others] = [await open(), await open()];
    const { of, came } = recordsOf(locks);
    await locks.withLock('order:17', () => Promise.resolve());
    await locks.withLock('order:18', { label: 'payments' }, () => Promise.resolve());
    const held = await others.acquire('order:19');
    await expect(locks.acquire('order:19', { waitMs: 0, label: 'tries' })).rejects.toThrow('"order:19"');
    await held.release();
    const lost = await locks.acquire('lost', { ttlMs: 200, watchdog: false });
    await came('lost');
    await lost.release();
    await came('released', 2);
    await came('contended');
    expect(of('acquired').map(({ label }) => label)).toEqual(['order', 'payments', '_key']);
    expect(of('released').map(({ label }) => label)).toEqual(['order', 'payments']);
    expect(of('contended')).toMatchObject([{ key: 'order:19', label: 'tries' }]);
    expect(of('lost')).toMatchObject([{ label: '_key' }]);
    for (const label of ['', 'x'.repeat(101), 7 as never]) {
      await expect(locks.acquire('k', { label })).rejects.toThrow('label must be a string of 1 to 100 characters');
    }
  });

  it('are few, however many keys there are [G411]', async () => {
    const locks = await openLocks({ memory: true });
    const { of } = recordsOf(locks);
    for (let index = 0; index < 150; index++) await locks.withLock(`user${index}:x`, () => Promise.resolve());
    const labels = new Set(of('acquired').map(({ label }) => label));
    expect(labels.size).toBe(101);
    expect(labels).toContain('_other');
  });

  it('are _key for keys without a colon, which may consist of data only, unless the call has a label [G567]', async () => {
    const locks = await openLocks({ memory: true });
    const { of } = recordsOf(locks);
    for (const key of ['ada@example.org', ':ada@example.org', 'nightly']) await locks.withLock(key, nothing);
    await locks.withLock('nightly', { label: 'nightly' }, nothing);
    await locks.withLock(['ada@example.org', 'users:ada'], nothing);
    expect(of('acquired').map(({ label }) => label)).toEqual(['_key', '_key', '_key', 'nightly', '_key', 'users']);
    await locks.withLock('ada@example.org', async () => {
      expect(locks.stats()).toEqual([{ label: '_key', held: 1, waiting: 0 }]);
    });
  });

  it('of methods, of options and of elections are never _other, however many first parts there are [G568]', async () => {
    class Orders {
      @Locked('order:{0}')
      async byText(_id: string): Promise<void> {}

      @Locked('import')
      async byFixedText(): Promise<void> {}

      @Locked((id: string) => lockKey`invoice:${id}`)
      async byFunction(_id: string): Promise<void> {}

      @Locked(['stock:{0}', 'ledger'])
      async bySeveral(_id: string): Promise<void> {}
    }
    const { app, locks } = await makeApp({ providers: [Orders] });
    for (let index = 0; index < 150; index++) await locks.withLock(`user${index}:x`, nothing);
    const { of } = recordsOf(locks);
    const orders = app.get(Orders);
    await orders.byText('1');
    await orders.byFixedText();
    await orders.byFunction('1');
    await orders.bySeveral('1');
    await locks.withLock('refund:1', { label: 'refunds' }, nothing);
    await locks.withLock('refund:1', nothing);
    const leader = locks.leader('jobs');
    await until(() => leader.isLeader, { what: 'the process leads' });
    expect(of('acquired').map(({ label }) => label)).toEqual([
      'order:{0}',
      'import',
      'Orders.byFunction',
      'Orders.bySeveral',
      'Orders.bySeveral',
      'refunds',
      '_other',
      'jobs',
    ]);
  });

  it('events say how a call got its lock, and for how long it waited for it and held it [G412]', async () => {
    const [locks, others] = [await open(), await open()];
    const { of, came } = recordsOf(locks);
    const first = await locks.acquire('a:1');
    const { remainingMs } = first;
    await until(() => first.remainingMs < remainingMs - 50, { what: 'a while' });
    const second = locks.acquire('a:1');
    await first.release(); // granted alone: it has no turns to pass on
    await (await second).release();
    const held = await others.acquire('a:2');
    const waiting = [locks.acquire('a:2'), locks.acquire('a:2')] as const;
    await untilQueued('a:2');
    await held.release();
    await (await waiting[0]).release();
    await (await waiting[1]).release();
    await came('released', 4);
    const [free, , waited, passed] = of('acquired');
    expect(free).toMatchObject({ grant: 'free', waitedMs: expect.any(Number) as number });
    expect(waited).toMatchObject({ key: 'a:2', grant: 'waited' });
    expect(passed).toMatchObject({ key: 'a:2', grant: expect.stringMatching(/^(passed|waited)$/) as string });
    expect(of('released')[0]!.heldMs).toBeGreaterThanOrEqual(40);
    expect(of('released')[0]!.heldMs).toBeLessThan(10_000);
  });

  it('held locks and waiting calls are counted by label [G413]', async () => {
    const locks = await open();
    expect(locks.stats()).toEqual([]);
    const held = await locks.acquireAll(['stock:1', 'stock:2']);
    const other = await locks.acquire('job', { label: 'jobs' });
    const waiting = [locks.acquire('stock:1'), locks.acquire('job', { label: 'more jobs' })];
    expect(locks.stats().sort((a, b) => a.label.localeCompare(b.label))).toEqual([
      { label: 'jobs', held: 1, waiting: 0 },
      { label: 'more jobs', held: 0, waiting: 1 },
      { label: 'stock', held: 2, waiting: 1 },
    ]);
    await Promise.all([held.release(), other.release()]);
    for (const lock of await Promise.all(waiting)) await lock.release();
    expect(locks.stats()).toEqual([]);
  });
});
