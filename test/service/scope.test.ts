import { AsyncLocalStorage } from 'node:async_hooks';
import { beforeEach, describe, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { serverOfFile } from '../support/stage.js';

const tenants = new AsyncLocalStorage<string | null>();
const as = <T>(tenant: string | null, work: () => T): T => tenants.run(tenant, work);
const scope = () => tenants.getStore();
const nothing = () => Promise.resolve();

const server = await serverOfFile();
let locks: LockService;
beforeEach(async () => {
  locks = await openLocks({ redis: server.url, scope });
});

describe('the scope of a call', () => {
  it('begins its key, so that different tenants do not wait for each other, but calls of one tenant do [G939]', async () => {
    const others = await openLocks({ redis: server.url, scope });
    const acme = await as('acme', () => locks.acquire('order:1'));
    expect(acme.key).toBe('@acme/order:1');
    await as('globex', () => others.withLock('order:1', { waitMs: 0 }, nothing));
    await as(null, () => others.withLock('order:1', { waitMs: 0 }, nothing));
    await expect(as('acme', () => others.acquire('order:1', { waitMs: 0 }))).rejects.toMatchObject({
      code: 'LOCK_CONTENDED',
      key: '@acme/order:1',
    });
    await acme.release();
  });

  it('is shown separately by inspect and list, and the shown key names the lock if the scope is null [G940]', async () => {
    const lock = await as('a/b:c%', () => locks.acquire('order:1'));
    const plain = await as(null, () => locks.acquire('order:1'));
    const info = await as('a/b:c%', () => locks.inspect('order:1'));
    expect(info).toMatchObject({ scope: 'a/b:c%', key: '@a%2Fb%3Ac%25/order:1' });
    const shown = (await locks.list()).locks.map(({ scope: of, key }) => [of, key]);
    expect(shown).toEqual([
      ['a/b:c%', '@a%2Fb%3Ac%25/order:1'],
      [undefined, 'order:1'],
    ]);
    const { key, digest } = info!;
    for (const tenant of [null, 'globex']) {
      expect(await as(tenant, () => locks.inspect(key, { scope: null }))).toMatchObject({ digest });
      expect(await as(tenant, () => locks.isLocked(key, { scope: null }))).toBe(true);
    }
    expect(await as('globex', () => locks.inspect(key))).toBeNull();
    expect(await as('globex', () => locks.forceRelease(key))).toBe(false);
    expect(await as('globex', () => locks.forceRelease(key, { owner: digest, scope: null }))).toBe(true);
    expect(await lock.release()).toBe(false);
    await plain.release();
  });

  it('can be named by the call itself, also where the registration has none [G941]', async () => {
    const none = await openLocks({ redis: server.url });
    const keyOf = ({ key }: { key: string }) => Promise.resolve(key);
    await as('acme', async () => {
      expect(await locks.withLock('x', { scope: null }, keyOf)).toBe('x');
      expect(await locks.withLock('x', { scope: 'globex' }, keyOf)).toBe('@globex/x');
      expect(await none.withLock('x', keyOf)).toBe('x');
      expect(await none.withPermits('x', { limit: 1, scope: 'globex' }, keyOf)).toBe('@globex/x');
    });
    expect(await locks.withLock('x', { scope: null }, keyOf)).toBe('x');
    for (const wrong of ['', 7, {}]) {
      const asked = { scope: wrong as string };
      const message = 'scope must be a non-empty string, or null for none: got';
      await expect(locks.acquire('x', asked)).rejects.toThrow(message);
      await expect(locks.inspect('x', asked)).rejects.toThrow(message);
      await expect(locks.forceRelease('x', asked)).rejects.toThrow(message);
    }
    await expect(locks.inspect('x', { scop: null } as never)).rejects.toThrow('There is no option "scop"');
  });

  it('is in the keys of permits and of sets, and a key without it names the lock that the call holds', async () => {
    await as('acme', async () => {
      const permits = (await locks.tryAcquirePermits('a', { limit: 2 }))!;
      const set = (await locks.tryAcquireAll(['c', 'b']))!;
      expect([permits.key, ...set.keys]).toEqual(['@acme/a', '@acme/b', '@acme/c']);
      expect([set.get('b').key, set.get('@acme/c').key]).toEqual(['@acme/b', '@acme/c']);
      await locks.withLock('d', async () => {
        expect([locks.current('d').key, locks.current('@acme/d').key]).toEqual(['@acme/d', '@acme/d']);
        expect(() => locks.current('@globex/d')).toThrow('outside');
      });
    });
  });

  it('that is forgotten refuses the call: no lock is asked for [G942]', async () => {
    const refused = { code: 'LOCK_KEY', statusCode: 500 };
    const message =
      'The scope of the key "order:1" is undefined. Pass a value, or check it beforehand. For a call without a scope, return null.';
    await expect(locks.acquire('order:1')).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining(message),
    });
    await expect(locks.acquireAll(['order:1'])).rejects.toMatchObject(refused);
    await expect(locks.withPermits('order:1', { limit: 1 }, nothing)).rejects.toMatchObject(refused);
    await expect(locks.inspect('order:1')).rejects.toMatchObject(refused);
    await expect(locks.isLocked('order:1')).rejects.toMatchObject(refused);
    await expect(locks.forceRelease('order:1')).rejects.toMatchObject(refused);
    await expect(as('', () => locks.acquire('order:1'))).rejects.toThrow('The scope of the key "order:1" is empty.');
    expect((await locks.list()).locks).toEqual([]);
    expect(locks.size).toBe(0);
  });

  it('that throws, or is a promise, refuses the call, and rejects nothing else', async () => {
    const cause = new Error('no request');
    const broken = await openLocks({
      memory: true,
      scope: () => {
        throw cause;
      },
    });
    await expect(broken.acquire('x')).rejects.toMatchObject({ code: 'LOCK_KEY', cause });
    const late = await openLocks({ memory: true, scope: (() => Promise.reject(cause)) as never });
    await expect(late.acquire('x')).rejects.toThrow('is an object without a string form');
    await expect(openLocks({ memory: true, scope: 'acme' as never })).rejects.toThrow(
      'scope must be a function that returns a string, or null for none: got "acme"',
    );
  });

  it('never makes two scopes share a key, and makes no key too long or invalid', async () => {
    const keyOf = async (tenant: string, key: string) =>
      as(tenant, () => locks.withLock(key, async (lock) => lock.key));
    const keys = [
      await keyOf('a', 'b/c'),
      await keyOf('a/b', 'c'),
      await keyOf('a%2Fb', 'c'),
      await keyOf('a', '@b/c'),
      await keyOf('@a', 'b/c'),
      await keyOf('{a}', 'c'),
    ];
    expect(new Set(keys).size).toBe(keys.length);
    expect(keys.at(-1)).toBe('@%7Ba%7D/c');
    expect(await keyOf('a', '@a/b/c')).toBe(keys[0]); // the key of a lock, or an error, names it
    await expect(keyOf('a', 'x'.repeat(1_024))).rejects.toThrow('must not be longer than 1024 bytes');
    await expect(keyOf('a', '')).rejects.toThrow("got ''");
    await expect(keyOf('a', '}x')).rejects.toThrow('must not begin with "}"');
    await expect(keyOf('a', null as never)).rejects.toThrow('got null');
  });
});
