import { expect, it, onTestFinished, vi } from 'vitest';
import type { LockService, LockServiceOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { warningsOf } from '../support/scene.js';
import { scriptCalls } from '../support/script-calls.js';
import { redisServer } from '../support/stage.js';

const SITE = String.raw`(?:\S+ )?\(?\S+lock-order\.test\.ts:\d+:\d+\)?`;
const work = async () => {};

/** Opens a service in memory, and collects the messages of its warnings. */
const open = async (options: LockServiceOptions = { lockOrder: 'warn' }): Promise<[LockService, string[]]> => {
  const locks = await openLocks({ memory: true, ...options });
  return [locks, warningsOf(locks)];
};

/** Takes each lock under the previous one. */
const take = async (locks: LockService, ...[key, ...inner]: string[]): Promise<void> =>
  key === undefined ? undefined : locks.withLock(key, () => take(locks, ...inner));

it('locks that are taken in opposite orders cause one warning, which names both orders and their lines [G373]', async () => {
  const [locks, warnings] = await open();
  const pays = (id: string) => locks.withLock(`order:${id}`, () => locks.withLock(`stock:${id}`, work));
  const moves = (id: string) => locks.withLock(`stock:${id}`, () => locks.acquire(`order:${id}`));
  await pays('1');
  await pays('2');
  expect(warnings).toEqual([]);
  await (await moves('3')).release();
  await (await moves('4')).release();
  await pays('5');
  expect(warnings).toEqual([
    expect.stringMatching(
      new RegExp(
        `^Locks are taken in different orders: ${SITE} takes "order:3" under "stock:3"; ` +
          `${SITE} takes "stock:1" under "order:1"\\. Calls that do so at the same time may wait for each other until ` +
          'waitMs has passed\\. Always take them in the same order, or at once with acquireAll; see docs/tuning\\.md\\.$',
      ),
    ),
  ]);
  const lines = [...warnings[0]!.matchAll(/test\.ts:(\d+):/g)].map(([, line]) => Number(line));
  expect(lines[0]! - lines[1]!).toBe(1); // moves is below pays
});

it('locks that a call holds already, does not wait for, or has given back may be taken in any order, like locks of another service', async () => {
  const [[locks, warnings], [others, warningsOfOthers]] = [await open(), await open()];
  await take(locks, 'a', 'b', 'a');
  await take(others, 'b', 'a');
  await locks.withLock('b', async (lock) => {
    await (await locks.tryAcquire('a'))!.release();
    await locks.withLock('a', { waitMs: 0 }, work);
    await lock.release();
    await locks.withLock('a', work);
  });
  await locks.withLock(['a', 'b'], { waitMs: 0 }, work);
  await (await locks.tryAcquireAll(['a', 'b']))!.release();
  expect([...warnings, ...warningsOfOthers]).toEqual([]);
});

it('the check ends after 100 warnings', async () => {
  const [locks, warnings] = await open();
  const nameOf = (kind: number) => [...String(kind)].map((digit) => 'klmnopqrst'[Number(digit)]).join('');
  for (let kind = 0; kind < 120; kind++) {
    await take(locks, 'a', nameOf(kind));
    await take(locks, nameOf(kind), 'a');
  }
  expect(warnings).toHaveLength(100);
});

it('an order that closes a cycle of three or four is found, and all of them are named [G374]', async () => {
  const [locks, warnings] = await open();
  await take(locks, 'a', 'b');
  await take(locks, 'b', 'c');
  await take(locks, 'c', 'a');
  expect(warnings).toEqual([
    expect.stringMatching(/ takes "a" under "c"; .* takes "b" under "a"; .* takes "c" under "b"\. /),
  ]);
  await take(locks, 'c', 'd');
  await take(locks, 'd', 'a');
  expect(warnings[1]).toMatch(/ takes "a" under "d"; .* takes "b" .* takes "c" under "b"; .* takes "d" under "c"\. /);
});

it('a second key of the same kind must be greater than the key that the call holds [G375]', async () => {
  const [locks, warnings] = await open();
  await take(locks, 'account:1', 'account:2');
  expect(warnings).toEqual([]);
  await take(locks, 'account:8', 'account:7');
  await take(locks, 'account:9', 'account:10');
  expect(warnings).toEqual([
    expect.stringMatching(/^Locks of one kind .* takes "account:7" under "account:8"\. .* Sort the keys, or /),
  ]);
});

it('1 500 keys of one kind are one of the 1 000 kinds that are checked [G376]', async () => {
  const [locks, warnings] = await open();
  await locks.withLock('a', async () => {
    for (let id = 0; id < 1_500; id++) await locks.withLock(`b:${id}`, work);
  });
  await take(locks, 'b:1', 'a');
  expect(warnings).toHaveLength(1);
});

it('a set takes its locks in the order of their keys, so a call that takes them in the opposite order is reported with both places [G508]', async () => {
  const [locks, warnings] = await open();
  const moves = () => locks.withLock(['stock:1', 'order:1'], work);
  const pays = () => locks.withLock('stock:2', () => locks.withLock('order:2', work));
  await moves();
  await pays();
  await pays();
  expect(warnings).toEqual([
    expect.stringMatching(
      new RegExp(
        `^Locks are taken in different orders: ${SITE} takes "order:2" under "stock:2"; ` +
          `${SITE} takes "order:1" before "stock:1" \\(a call for several keys, which takes them sorted\\)\\. `,
      ),
    ),
  ]);
  const lines = [...warnings[0]!.matchAll(/test\.ts:(\d+):/g)].map(([, line]) => Number(line));
  expect(lines[0]! - lines[1]!).toBe(1); // pays is below moves
});

it('a cycle goes through sets of any size, and through sets that are taken under a lock', async () => {
  const [locks, warnings] = await open();
  await locks.withLock('z', () => locks.withLock(['c', 'a', 'b'], work));
  await take(locks, 'c', 'y');
  expect(warnings).toEqual([]);
  await take(locks, 'y', 'a');
  expect(warnings).toEqual([
    expect.stringMatching(
      / takes "a" under "y"; .* takes "a" before "b" .*; .* takes "b" before "c" .*; .* takes "y" /,
    ),
  ]);
  await take(locks, 'b', 'z');
  expect(warnings[1]).toMatch(/ takes "z" under "b"; .* takes "b" under "z"\. /);
});

it('steps that all follow the order of keys are not a cycle, whatever kinds of keys a set has', async () => {
  const [locks, warnings] = await open();
  await locks.withLock(['order:1', 'order:1:items', 'order:2', 'order:2:items'], work);
  await locks.withLock(['order:1:items', 'order:2'], work);
  await take(locks, 'order:7', 'order:7:items');
  expect(warnings).toEqual([]);
  await take(locks, 'order:7:items', 'order:7');
  expect(warnings).toEqual([expect.stringContaining('takes "order:7" under "order:7:items"; ')]);
});

it("with lockOrder 'throw' each such call is refused, before Redis is asked [G378]", async () => {
  const server = await redisServer();
  const locks = await openLocks({ redis: server.url, lockOrder: 'throw' });
  await take(locks, 'a', 'b');
  await locks.withLock('b', async () => {
    await server.resetCalls();
    for (const call of [() => locks.withLock('a', work), () => locks.acquire('a')]) {
      await expect(call()).rejects.toMatchObject({
        code: 'LOCK_OPTIONS',
        message: expect.stringContaining('takes "a" under "b"'),
      });
    }
    expect(await scriptCalls(server)).toBe(0);
  });
  await take(locks, 'a', 'b');
});

it('a call that is refused leaves no order behind', async () => {
  const [locks] = await open({ lockOrder: 'throw' });
  await take(locks, 'b', 'd');
  await expect(take(locks, 'a', 'd', 'b')).rejects.toMatchObject({ code: 'LOCK_OPTIONS' }); // and so no order of a before b
  await take(locks, 'b', 'a');
  await expect(locks.withLock('d', () => locks.acquireAll(['b', 'x']))).rejects.toThrow('in different orders');
  await take(locks, 'x', 'd');
  await expect(take(locks, 'd', 'x')).rejects.toThrow('in different orders');
});

it('by default no order is remembered, and no stack is read [G379]', async () => {
  const read = vi.spyOn(Error, 'captureStackTrace');
  onTestFinished(() => read.mockRestore());
  const [locks, warnings] = await open({});
  await take(locks, 'a', 'b');
  await take(locks, 'b', 'a');
  await take(locks, 'b:2', 'b:1');
  expect(warnings).toEqual([]);
  expect(read.mock.calls.filter(([at]) => !(at instanceof Error))).toEqual([]);
});
