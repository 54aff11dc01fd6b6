import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { LockService, LockServiceOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { scriptCalls } from '../support/script-calls.js';

const SITE = String.raw`(?:\S+ )?\(?\S+lock-order\.test\.ts:\d+:\d+\)?`;
const work = async () => {};

/** Opens a service in memory, and collects the messages of its warnings. */
const open = async (options: LockServiceOptions = { lockOrder: 'warn' }): Promise<[LockService, string[]]> => {
  const locks = await openLocks({ memory: true, ...options });
  const warnings: string[] = [];
  locks.events$.subscribe((event) => {
    if (event.type === 'warning') warnings.push(event.message);
  });
  return [locks, warnings];
};

/** Takes each lock under the one before. */
const take = async (locks: LockService, ...[key, ...inner]: string[]): Promise<void> =>
  key === undefined ? undefined : locks.withLock(key, () => take(locks, ...inner));

describe('the check of the order of locks', () => {
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
            'waitMs is over\\. Always take them in one order, or at once with acquireAll; see docs/waiting\\.md\\.$',
        ),
      ),
    ]);
    const lines = [...warnings[0]!.matchAll(/test\.ts:(\d+):/g)].map(([, line]) => Number(line));
    expect(lines[0]! - lines[1]!).toBe(1); // moves stands below pays
  });

  it('locks that are always taken in one order cause no warning, at whatever depth', async () => {
    const [locks, warnings] = await open();
    await take(locks, 'a', 'b', 'c');
    await take(locks, 'a', 'c');
    await take(locks, 'b', 'c', 'd');
    await take(locks, 'a', 'd');
    await Promise.all([take(locks, 'a', 'b'), take(locks, 'c', 'd')]);
    expect(warnings).toEqual([]);
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

  it('an order that was reported is not one that others are measured by', async () => {
    const [locks, warnings] = await open();
    await take(locks, 'a', 'b');
    await take(locks, 'b', 'a');
    await take(locks, 'a', 'c', 'b');
    await take(locks, 'c', 'b');
    expect(warnings).toHaveLength(1);
  });

  it('a second key of one kind has to be greater than the one that the call holds [G375]', async () => {
    const [locks, warnings] = await open();
    await take(locks, 'account:1', 'account:2');
    expect(warnings).toEqual([]);
    await take(locks, 'account:8', 'account:7');
    await take(locks, 'account:9', 'account:10');
    expect(warnings).toEqual([
      expect.stringMatching(/^Locks of one kind .* takes "account:7" under "account:8"\. .* Sort the keys, or /),
    ]);
  });

  it.each([
    ['numbers', 'user:4:cart', 'user:17:cart'],
    ['UUIDs', 'user:123e4567-e89b-12d3-a456-426614174000', 'user:00000000-e89b-12d3-a456-FFFFFFFFFFFF'],
    ['hexadecimal ids', 'user:507f1f77bcf86cd799439011', 'user:407f1f77bcf86cd799439abc'],
  ])('keys that differ in %s alone are of one kind', async (_, greater, smaller) => {
    const [locks, warnings] = await open();
    await take(locks, greater, smaller);
    expect(warnings).toHaveLength(1);
  });

  it('10 000 keys of one kind are one of the 1 000 kinds that are checked [G376]', async () => {
    const [locks, warnings] = await open();
    await locks.withLock('a', async () => {
      for (let id = 0; id < 10_000; id++) await locks.withLock(`b:${id}`, work);
    });
    await take(locks, 'b:1', 'a');
    expect(warnings).toHaveLength(1);
  });

  it('kinds beyond the first 1 000 are not checked, and those before go on to be', async () => {
    const [locks, warnings] = await open();
    await take(locks, 'a', 'b');
    await locks.withLock('a', async () => {
      for (let kind = 0; kind < 1_000; kind++) await locks.withLock(letters(kind), work);
    });
    await take(locks, letters(999), 'a');
    expect(warnings).toEqual([]);
    await take(locks, 'b', 'a');
    expect(warnings).toHaveLength(1);
  });

  it('orders beyond the first 10 000 are not remembered, and those before go on to be', async () => {
    const [locks, warnings] = await open();
    const all = Array.from({ length: 145 }, (_, kind) => letters(kind)); // 145 * 144 / 2 orders
    await take(locks, ...all);
    await take(locks, 'x', 'y');
    await take(locks, 'y', 'x');
    expect(warnings).toEqual([]);
    await take(locks, all[1]!, all[0]!);
    expect(warnings).toHaveLength(1);
  });

  it('the check ends after 100 warnings', async () => {
    const [locks, warnings] = await open();
    for (let kind = 0; kind < 120; kind++) {
      await take(locks, 'a', letters(kind));
      await take(locks, letters(kind), 'a');
    }
    expect(warnings).toHaveLength(100);
  });

  it('a lock is known to be held after the event loop has run, and no longer when it was given back', async () => {
    const [locks, warnings] = await open();
    await take(locks, 'a', 'b');
    await locks.withLock('b', async (lock) => {
      await pause(1);
      await lock.release();
      await locks.withLock('a', work);
    });
    expect(warnings).toEqual([]);
    await locks.withLock('b', async () => {
      await pause(1);
      await locks.withLock('a', work);
    });
    expect(warnings).toHaveLength(1);
  });

  it('a lock that the call holds already, and one that it does not wait for, may be taken in any order', async () => {
    const [locks, warnings] = await open();
    await take(locks, 'a', 'b', 'a');
    await locks.withLock('b', async () => {
      await (await locks.tryAcquire('a'))!.release();
      await locks.withLock('a', { waitMs: 0 }, work);
    });
    expect(warnings).toEqual([]);
  });

  it('each service has orders of its own', async () => {
    const [[locks, warnings], [others, warningsOfOthers]] = [await open(), await open()];
    await take(locks, 'a', 'b');
    await take(others, 'b', 'a');
    expect([...warnings, ...warningsOfOthers]).toEqual([]);
  });
});

describe('the order inside a set', () => {
  it('a set takes its locks in the order of their keys, so a call that takes them the other way round is reported with both places [G508]', async () => {
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
    expect(lines[0]! - lines[1]!).toBe(1); // pays stands below moves
  });

  it('a cycle within one call is reported: it takes a set under a lock that belongs behind one of the set', async () => {
    const [locks, warnings] = await open();
    const call = () => locks.withLock('z:1', () => locks.withLock(['x:1', 'z:2'], work));
    await call();
    await call();
    expect(warnings).toEqual([expect.stringMatching(/^Locks are taken in different orders: /)]);
  });

  it('a call that is refused leaves no order behind', async () => {
    const [locks] = await open({ lockOrder: 'throw' });
    const refused = locks.withLock('z:1', () => locks.withLock(['x:1', 'z:2'], work));
    await expect(refused).rejects.toThrow(/^Locks are taken in different orders: /);
    await locks.withLock('x:1', () => locks.withLock('z:1', work)); // it would be the other way round
  });

  it('such a set is reported, too, when it comes after that call', async () => {
    const [locks, warnings] = await open();
    await take(locks, 'b', 'a');
    await (await locks.acquireAll(['a', 'b'])).release();
    expect(warnings).toEqual([
      expect.stringMatching(/takes "a" before "b" \(a call for several keys.*\); .* takes "a" under "b"\. /),
    ]);
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

  it('steps that all go by the order of keys are no cycle, whatever kinds of keys a set has', async () => {
    const [locks, warnings] = await open();
    await locks.withLock(['order:1', 'order:1:items', 'order:2', 'order:2:items'], work);
    await locks.withLock(['order:1:items', 'order:2'], work);
    await take(locks, 'order:7', 'order:7:items');
    expect(warnings).toEqual([]);
    await take(locks, 'order:7:items', 'order:7');
    expect(warnings).toEqual([expect.stringContaining('takes "order:7" under "order:7:items"; ')]);
  });

  it('a set that tries once, and what a call holds of a set already, have no order', async () => {
    const [locks, warnings] = await open();
    await locks.withLock(['a', 'b'], { waitMs: 0 }, work);
    await (await locks.tryAcquireAll(['a', 'b']))!.release();
    await take(locks, 'b', 'a');
    await locks.withLock('d', () => locks.withLock(['c', 'd'], { waitMs: 0 }, work));
    await locks.withLock(['c', 'd'], () => locks.withLock(['c', 'd'], work));
    expect(warnings).toEqual([]);
    await locks.withLock('d', () => locks.withLock(['c', 'd'], work));
    expect(warnings).toEqual([expect.stringContaining('takes "c" under "d"; ')]);
  });
});

describe("lockOrder: 'throw'", () => {
  it("with lockOrder 'throw' such a call is refused each time, before Redis is asked [G378]", async () => {
    const server = await RedisServer.start();
    onTestFinished(() => server.stop());
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

  it("with lockOrder 'throw' a set whose order others turn round is refused, and so is a call that turns its order round", async () => {
    const [locks] = await open({ lockOrder: 'throw' });
    await locks.withLock(['a', 'b'], work);
    await expect(take(locks, 'b', 'a')).rejects.toThrow('takes "a" before "b"');
    await take(locks, 'y', 'x');
    const set = locks.withLock(['y', 'x'], work);
    await expect(set).rejects.toMatchObject({
      code: 'LOCK_OPTIONS',
      message: expect.stringContaining('"x" before "y"'),
    });
    expect(await locks.isLocked('x')).toBe(false);
    await take(locks, 'y', 'x');
  });

  it('a call that is refused leaves no order behind', async () => {
    const [locks] = await open({ lockOrder: 'throw' });
    await take(locks, 'b', 'd');
    await expect(take(locks, 'a', 'd', 'b')).rejects.toMatchObject({ code: 'LOCK_OPTIONS' }); // and so not b under a
    await take(locks, 'b', 'a');
  });

  it('a call for several keys that is refused leaves no order behind', async () => {
    const [locks] = await open({ lockOrder: 'throw' });
    await take(locks, 'z', 'm');
    await locks.withLock('m', () => expect(locks.acquireAll(['a', 'z'])).rejects.toThrow('in different orders'));
    await take(locks, 'a', 'm');
    await expect(take(locks, 'm', 'a')).rejects.toThrow('in different orders');
  });
});

describe("lockOrder: 'off'", () => {
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

  it('a single call cannot have it', async () => {
    const [locks] = await open();
    await expect(locks.acquire('k', { lockOrder: 'warn' } as never)).rejects.toThrow(
      /^There is no option "lockOrder": expected ttlMs, /,
    );
  });
});

/** A word for a number: a key of a kind of its own. */
function letters(number: number): string {
  return [...String(number)].map((digit) => 'klmnopqrst'[Number(digit)]).join('');
}
