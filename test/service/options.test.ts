import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  LockOptionsError,
  type LockService,
  type RedisLockModuleOptions,
  type TryAcquireOptions,
  type WithLockOptions,
} from 'nest-redis-lock';
import { resolveOptions } from '../../lib/compose/redis-lock-options.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { scriptCalls } from '../support/script-calls.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

/** What a caller without types may pass. */
const untyped = <T>(value: unknown): T => value as T;

describe('the options of a service', () => {
  it('have the defaults that the documentation tells', () => {
    expect(resolveOptions({ memory: true })).toEqual({
      backend: { kind: 'memory' },
      registration: 'default',
      ttlMs: 30_000,
      waitMs: 10_000,
      watchdog: true,
      reentrant: true,
      onTransaction: 'warn',
      onLost: 'reject',
      keyPrefix: 'lock',
      marginMs: 0,
      fair: false,
      fairSlackMs: 1,
      maxWaiters: 10_000,
      cohortPasses: 100,
      cohortMs: 100,
      lockOrder: 'off',
      policies: new Map(),
      admission: true,
      lazyConnect: false,
      connectTimeoutMs: 5_000,
      shutdownTimeoutMs: 10_000,
    });
  });

  it('that are undefined have their default', () => {
    expect(resolveOptions({ memory: true, ttlMs: undefined, keyPrefix: undefined })).toMatchObject({
      ttlMs: 30_000,
      keyPrefix: 'lock',
    });
  });

  it.each<[string, object]>([
    ['ttlMs must be a whole number of milliseconds from 20 to 86400000: got 19.', { ttlMs: 19 }],
    ['ttlMs must be a whole number of milliseconds from 20 to 86400000: got 86400001.', { ttlMs: 86_400_001 }],
    ['ttlMs must be a whole number of milliseconds from 20 to 86400000: got "30s".', { ttlMs: '30s' }],
    ['waitMs must be a whole number of milliseconds from 0 to 2147483647: got -1.', { waitMs: -1 }],
    ['waitMs must be a whole number of milliseconds from 0 to 2147483647: got Infinity.', { waitMs: Infinity }],
    ['watchdog must be true or false: got 1.', { watchdog: 1 }],
    ['reentrant must be true or false: got "yes".', { reentrant: 'yes' }],
    ['onLost must be "reject" or "ignore": got "throw".', { onLost: 'throw' }],
    ['lockOrder must be "off" or "warn" or "throw": got true.', { lockOrder: true }],
    ['keyPrefix must be a string of 1 to 200 characters without braces: got "".', { keyPrefix: '' }],
    ['keyPrefix must be a string of 1 to 200 characters without braces: got "a{b}".', { keyPrefix: 'a{b}' }],
    ['marginMs must leave a tenth of ttlMs: got marginMs 900 with ttlMs 1000.', { ttlMs: 1_000, marginMs: 900 }],
    ['commandTimeoutMs must be a whole number of milliseconds from 10 to 60000: got 0.', { commandTimeoutMs: 0 }],
    ['There is no option "ttl": expected ttlMs, ', { ttl: 1_000 }],
    ['There is no option "signal"', { signal: AbortSignal.abort() }],
    ['There is no option "maxHoldMs"', { maxHoldMs: 5_000 }],
  ])('are refused with: %s', (message, settings) => {
    expect(() => resolveOptions({ memory: true, ...settings })).toThrow(message);
    expect(() => resolveOptions({ memory: true, ...settings })).toThrow(LockOptionsError);
  });

  it.each<[string, unknown]>([
    ['Exactly one of redis, redlock and memory is expected: got none of them.', {}],
    [
      'Exactly one of redis, redlock and memory is expected: got redis: undefined. Is the variable set?',
      { redis: undefined },
    ],
    ['Exactly one of redis, redlock and memory is expected: got redis and memory.', { redis: '/s', memory: true }],
    ['memory must be true: got false.', { memory: false }],
    ['redlock needs at least 3 independent masters: got 2.', { redlock: ['/a', '/b'] }],
    ['redlock must be an array of Redis servers: got "/a".', { redlock: '/a' }],
    ['redlock[1] must be a redis:// or rediss:// URL, ', { redlock: ['/a', 'b', '/c'] }],
    ['redis must be a redis:// or rediss:// URL, ', { redis: 'http://user:secret@host' }],
    ['options must be an object: got undefined.', undefined],
  ])('that say where Redis is are refused with: %s', (message, options) => {
    expect(() => resolveOptions(untyped<RedisLockModuleOptions>(options))).toThrow(message);
  });

  it.each<[string, object, string]>([
    ['ttl', { memory: true, ttl: 5 }, 'Did you mean ttlMs?'],
    ['TTLms', { memory: true, TTLms: 5 }, 'Did you mean ttlMs?'],
    ['wait', { memory: true, wait: 5 }, 'Did you mean waitMs?'],
    ['host', { host: 'localhost', port: 6379 }, 'Did you mean redis: { host: ... }?'],
    ['password', { password: 'secret' }, 'Did you mean redis: { host: ... }?'],
    ['url', { url: 'redis://:secret@localhost' }, "Did you mean redis: 'redis://host:port'?"],
  ])('that are not known are refused with what was probably meant: %s', (name, options, hint) => {
    const resolve = () => resolveOptions(untyped<RedisLockModuleOptions>(options));
    expect(resolve).toThrow(new RegExp(`^There is no option "${name}": `));
    expect(resolve).toThrow(hint);
    expect(resolve).not.toThrow('secret');
  });

  it('that nobody can have meant are refused without a guess', () => {
    for (const name of ['nonsense', 'constructor', 'toString']) {
      expect(() => resolveOptions(untyped<RedisLockModuleOptions>({ memory: true, [name]: 1 }))).toThrow(
        /^There is no option "\w+": expected [^.]*\.$/,
      );
    }
  });

  it('never repeat a URL, which may hold a password', () => {
    expect(() => resolveOptions({ redis: 'http://user:secret@host' })).toThrow(/^(?!.*secret)/s);
  });
});

describe('the options of a call', () => {
  const calls: [string, (locks: LockService, options: TryAcquireOptions) => Promise<unknown>][] = [
    ['acquire', (locks, options) => locks.acquire('refused', options)],
    ['tryAcquire', (locks, options) => locks.tryAcquire('refused', options)],
    ['withLock', (locks, options) => locks.withLock('refused', options, () => 'ran')],
  ];

  it.each(calls)('are checked before anything is sent: %s', async (_, call) => {
    const locks = await openLocks({ redis: server.url, marginMs: 100 });
    await server.resetCalls();
    const bad = [{ ttlMs: 5 }, { ttlMs: 105 }, { watchdog: 'on' }, { reentrant: 0 }, { signal: {} }];
    for (const options of bad) {
      const calling = call(locks, untyped(options));
      await expect(calling).rejects.toMatchObject({ code: 'LOCK_OPTIONS', status: 500 });
    }
    await expect(locks.acquire('refused', { waitMs: 0.5 })).rejects.toThrow('waitMs must be');
    await expect(
      locks.withLock('refused', untyped<WithLockOptions>({ onLost: 'x' }), () => 'ran'),
    ).rejects.toBeInstanceOf(LockOptionsError);
    expect(await scriptCalls(server)).toBe(0);
  });

  it.each(calls)('are refused when they are not known, and what was meant is said: %s', async (_, call) => {
    const locks = await openLocks({ redis: server.url });
    await server.resetCalls();
    const refusals: [options: object, message: string | RegExp][] = [
      [{ ttl: 5 }, /^There is no option "ttl": expected ttlMs, [^.]*\. Did you mean ttlMs\?$/],
      [{ ttl: undefined }, 'Did you mean ttlMs?'],
      [{ registration: 'billing' }, 'with @InjectLockService(name).'],
      [
        { onContended: 'skip' },
        'It belongs to @Locked and @Limited: here catch LockContendedError, or use tryAcquire or tryAcquirePermits.',
      ],
      [{ keyPrefix: 'mine' }, 'There is no option "keyPrefix"'],
    ];
    for (const [options, message] of refusals) {
      const calling = call(locks, untyped(options));
      await expect(calling).rejects.toThrow(message);
      await expect(calling).rejects.toBeInstanceOf(LockOptionsError);
    }
    expect(await scriptCalls(server)).toBe(0);
  });

  it('are refused when they are of another call, and what to do instead is said', async () => {
    const locks = await openLocks({ redis: server.url });
    await server.resetCalls();
    const calling = [
      locks.tryAcquire('x', untyped({ ttlMs: 1_000, waitMs: 500 })),
      locks.tryAcquire('x', untyped({ onLost: 'ignore' })),
      locks.acquire('x', untyped({ onLost: 'reject' })),
    ];
    const refusals = await Promise.all(calling.map((call) => call.catch((error: unknown) => error)));
    const ofALoss =
      'It belongs to withLock and @Locked, withPermits and @Limited: here listen to lock.signal, or call lock.assertHeld().';
    expect(refusals.map(String)).toEqual([
      'LockOptionsError: There is no option "waitMs": expected ttlMs, watchdog, reentrant, onTransaction, holdMs, maxHoldMs, mode, label, scope, policy, signal. ' +
        'It never waits: use acquire or acquirePermits, and catch LockContendedError.',
      `LockOptionsError: There is no option "onLost": expected ttlMs, watchdog, reentrant, onTransaction, holdMs, maxHoldMs, mode, label, scope, policy, signal. ${ofALoss}`,
      `LockOptionsError: There is no option "onLost": expected ttlMs, waitMs, watchdog, reentrant, onTransaction, holdMs, maxHoldMs, mode, label, scope, policy, signal. ${ofALoss}`,
    ]);
    expect(await scriptCalls(server)).toBe(0);
  });

  it('of another call ask for nothing when they are undefined', async () => {
    const locks = await openLocks({ memory: true, waitMs: 60_000 });
    const spare = { waitMs: undefined, onLost: undefined };
    const lock = await locks.tryAcquire('x', { ...spare, ttlMs: 5_000 });
    expect(lock!.remainingMs).toBeLessThanOrEqual(5_000);
    expect(await locks.tryAcquire('x', spare)).toBeNull();
    await expect(locks.acquire('x', { waitMs: 0, onLost: undefined })).rejects.toMatchObject({
      code: 'LOCK_CONTENDED',
    });
    await expect(locks.tryAcquire('x', untyped({ waitMs: undefined, ttl: 5 }))).rejects.toThrow('option "ttl"');
  });

  it('that are too long are shown with a mark of what is left out, and null is called null', async () => {
    const locks = await openLocks({ memory: true });
    await expect(locks.acquire('x', { label: 'a'.repeat(101) })).rejects.toThrow(`: got "${'a'.repeat(40)}…".`);
    await expect(locks.acquire('x', untyped({ watchdog: 'a'.repeat(40) }))).rejects.toThrow(
      `: got "${'a'.repeat(40)}".`,
    );
    await expect(locks.withLock(untyped<string>(null), async () => {})).rejects.toThrow('string: got null.');
    await expect(locks.withLock('x', untyped<() => void>(null))).rejects.toThrow('last argument: got null.');
  });

  it('must be an object', async () => {
    const locks = await openLocks({ memory: true });
    await expect(locks.tryAcquire('x', untyped(null))).rejects.toThrow('options must be an object: got null.');
    await expect(locks.acquire('x', untyped(5))).rejects.toThrow('options must be an object: got 5.');
    await expect(locks.withLock('x', untyped(null), () => 'ran')).rejects.toThrow(
      'options must be an object: got null.',
    );
  });

  it('are those of the service where the call says nothing', async () => {
    const locks = await openLocks({ redis: server.url, ttlMs: 5_000, waitMs: 0, keyPrefix: 'mine' });
    const lock = await locks.acquire('defaults', { ttlMs: undefined });
    expect(await server.command('PTTL', 'mine:{defaults}')).toBeLessThanOrEqual(5_000);
    expect(lock.remainingMs).toBeLessThanOrEqual(5_000);
    await expect(locks.acquire('defaults')).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
  });

  it('hold for that call only', async () => {
    const locks = await openLocks({ redis: server.url });
    const short = await locks.acquire('short', { ttlMs: 5_000 });
    const long = await locks.acquire('long');
    expect(short.remainingMs).toBeLessThanOrEqual(5_000);
    expect(long.remainingMs).toBeGreaterThan(20_000);
  });
});

describe('the key of a call', () => {
  it.each<[string, unknown]>([
    ['empty', ''],
    ['undefined', undefined],
    ['a number', 7],
    ['longer than 1 KiB', 'ü'.repeat(513)],
    ['one that would end the hash tag', '}x'],
  ])('is refused when it is %s', async (_, key) => {
    const locks = await openLocks({ redis: server.url });
    const refused = { code: 'LOCK_KEY', status: 500 };
    const bad = untyped<string>(key);
    let ran = false;
    await expect(locks.acquire(bad)).rejects.toMatchObject(refused);
    await expect(locks.tryAcquire(bad)).rejects.toMatchObject(refused);
    await expect(locks.withLock(bad, () => (ran = true))).rejects.toMatchObject(refused);
    await expect(locks.inspect(bad)).rejects.toMatchObject(refused);
    await expect(locks.isLocked(bad)).rejects.toMatchObject(refused);
    await expect(locks.forceRelease(bad)).rejects.toMatchObject(refused);
    expect(ran).toBe(false);
  });

  it('may be anything else, up to 1 KiB', async () => {
    const locks = await openLocks({ redis: server.url });
    for (const key of ['ü'.repeat(512), ' ', 'a}b{c', '\n', '{', 'order:7', '锁']) {
      expect(await locks.withLock(key, (lock) => lock.key)).toBe(key);
    }
  });
});
