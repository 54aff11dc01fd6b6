import { describe, expect, it, onTestFinished } from 'vitest';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';
import {
  LockOptionsError,
  type LockService,
  type PermitOptions,
  type RedisLockModuleOptions,
  type RedisSource,
} from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { redisServer } from '../support/stage.js';

/** What a caller without types may pass. */
const untyped = <T>(value: unknown): T => value as T;
const MS = 'must be a whole number of milliseconds';
const NO_SERVER = 'Exactly one of redis, redlock and memory is expected: got';

/** The message for each: the whole message if it begins with ^. */
const OF_SERVICES: [options: unknown, message: string | RegExp][] = [
  [{}, `${NO_SERVER} none of them.`],
  [{ redis: undefined }, `${NO_SERVER} redis: undefined. Is the variable set?`],
  [{ redis: '/s', memory: true }, `${NO_SERVER} redis and memory.`],
  [{ memory: false }, 'memory must be true: got false.'],
  [{ redlock: ['/a', '/b'] }, 'redlock needs at least 3 independent masters: got 2.'],
  [{ redlock: '/a' }, 'redlock must be an array of Redis servers: got "/a".'],
  [{ redis: 'http://user:hunter2@host' }, 'redis must be a redis:// or rediss:// URL, '],
  [{ host: 'localhost', port: 6379 }, /^There is no option "host": .*Did you mean redis: \{ host: ... \}\?$/],
  [{ password: 'hunter2' }, 'Did you mean redis: { host: ... }?'],
  [{ url: 'redis://:hunter2@localhost' }, "Did you mean redis: 'redis://host:port'?"],
  [{ memory: true, TTLms: 5 }, /^There is no option "TTLms": expected ttlMs, .*Did you mean ttlMs\?$/],
  [{ memory: true, nonsense: 1 }, /^There is no option "nonsense": expected [^.]*\.$/],
  [{ memory: true, toString: 1 }, /^There is no option "toString": expected [^.]*\.$/],
  [{ memory: true, signal: AbortSignal.abort() }, 'There is no option "signal"'],
  [{ memory: true, maxHoldMs: 5_000 }, 'There is no option "maxHoldMs"'],
  [{ memory: true, ttlMs: 19 }, `ttlMs ${MS} from 20 to 86400000: got 19.`],
  [{ memory: true, ttlMs: 86_400_001 }, `ttlMs ${MS} from 20 to 86400000: got 86400001.`],
  [{ memory: true, ttlMs: '30s' }, `ttlMs ${MS} from 20 to 86400000: got "30s".`],
  [{ memory: true, waitMs: Infinity }, `waitMs ${MS} from 0 to 2147483647: got Infinity.`],
  [{ memory: true, commandTimeoutMs: 0 }, `commandTimeoutMs ${MS} from 10 to 60000: got 0.`],
  [
    { memory: true, ttlMs: 1_000, marginMs: 900 },
    'marginMs must be less than nine tenths of ttlMs: got marginMs 900 with ttlMs',
  ],
  [{ memory: true, telemetry: {} }, 'telemetry must be what otelLocks() of nest-redis-lock/otel returns: got'],
  [{ memory: true, watchdog: 1 }, 'watchdog must be true or false: got 1.'],
  [{ memory: true, onLost: 'throw' }, 'onLost must be "reject" or "ignore": got "throw".'],
  [{ memory: true, lockOrder: true }, 'lockOrder must be "off" or "warn" or "throw": got true.'],
  [{ memory: true, keyPrefix: '' }, 'keyPrefix must be a string of 1 to 200 characters without braces: got "".'],
  [{ memory: true, keyPrefix: 'a{b}' }, 'without braces: got "a{b}".'],
  [{ redlock: ['/a', '/b', '/c'], fair: true }, 'got redlock'],
  [{ redis: 'redis://a/hunter2' }, 'a URL whose path is not the number of a database. Write redis://host:port/0.'],
  [
    { redis: { host: 'a', db: 'hunter2' } },
    'database a string, which is not a database. Is the variable that it comes from',
  ],
  [{ redis: { host: 'a', db: -1 } }, 'database -1, which is not a database.'],
  [{ redis: { socket: { host: 'a' }, database: NaN } }, 'database NaN, which is not a database.'],
];

it.each(OF_SERVICES)('the options %o of a service are refused', async (options, message) => {
  const opening = openLocks(untyped<RedisLockModuleOptions>(options));
  await expect(opening).rejects.toThrow(message);
  await expect(opening).rejects.toBeInstanceOf(LockOptionsError);
  await expect(opening).rejects.not.toThrow('hunter2');
});

const OF_A_CALL =
  'ttlMs, waitMs, watchdog, reentrant, onTransaction, holdMs, maxHoldMs, mode, label, note, scope, policy, signal.';
const OF_A_TRIAL = OF_A_CALL.replace(' waitMs,', '');
const OF_A_LOSS =
  'It belongs to withLock and @Locked, withPermits and @Limited: here listen to lock.signal, or call lock.assertHeld().';
const ran = () => expect.unreachable('the work must not run');
const acquire = (options: unknown) => (locks: LockService) => locks.acquire('k', untyped(options));
const tryAcquire = (options: unknown) => (locks: LockService) => locks.tryAcquire('k', untyped(options));
const withLock = (options: unknown) => (locks: LockService) => locks.withLock('k', untyped(options), ran);
const permits = (options: unknown) => (locks: LockService) => locks.acquirePermits('k', options as PermitOptions);

const OF_CALLS: [call: (locks: LockService) => Promise<unknown>, message: string | RegExp][] = [
  ...[acquire, tryAcquire, withLock].flatMap((call): [(locks: LockService) => Promise<unknown>, string | RegExp][] => [
    [call({ ttlMs: 5 }), `ttlMs ${MS} from 20`],
    [call({ ttlMs: 105 }), 'marginMs must be less than nine tenths of ttlMs'],
    [call({ watchdog: 'on' }), 'watchdog must be true or false: got "on".'],
    [call({ reentrant: 0 }), 'reentrant must be true or false: got 0.'],
    [call({ signal: {} }), 'signal must be'],
    [call({ ttl: 5 }), /^There is no option "ttl": expected ttlMs, [^.]*\. Did you mean ttlMs\?$/],
    [call({ registration: 'billing' }), 'with @InjectLockService(name).'],
    [call({ onContended: 'skip' }), 'here catch LockContendedError, or use tryAcquire or tryAcquirePermits.'],
    [call({ keyPrefix: 'mine' }), 'There is no option "keyPrefix"'],
    [call({ lockOrder: 'warn' }), 'There is no option "lockOrder"'],
    [call({ mode: 'read' }), 'mode must be "exclusive" or "shared": got "read"'],
    [call({ mode: 'shared', holdMs: 5 }), 'A shared lock cannot be kept after its work'],
    [call({ label: 'a'.repeat(101) }), `: got "${'a'.repeat(40)}…".`],
    [call(null), 'options must be an object: got null.'],
  ]),
  [acquire({ waitMs: 0.5 }), 'waitMs must be'],
  [acquire({ onLost: 'reject' }), `There is no option "onLost": expected ${OF_A_CALL} ${OF_A_LOSS}`],
  [tryAcquire({ onLost: 'ignore' }), `There is no option "onLost": expected ${OF_A_TRIAL} ${OF_A_LOSS}`],
  [
    tryAcquire({ waitMs: 500 }),
    `There is no option "waitMs": expected ${OF_A_TRIAL} It never waits: use acquire or acquirePermits, and catch`,
  ],
  [acquire({ awaitRelease: false }), 'here do not await lock.release().'],
  [withLock({ onLost: 'x' }), 'onLost must be'],
  [withLock({ awaitRelease: 'no' }), 'awaitRelease must be true or false: got "no".'],
  [permits(undefined), 'options must be an object with a limit'],
  [permits({}), 'limit must be a whole number from 1 to 1000: got undefined'],
  [permits({ limit: 1_001 }), 'limit must be'],
  [permits({ limit: 2, permits: 0 }), 'permits must be'],
  [permits({ limit: 2, permits: 3 }), 'permits must be at most limit: got permits 3 with limit 2'],
  [permits({ limit: 2, holdMs: 5 }), 'Permits have no holdMs'],
  [permits({ limit: 2, lease: 5 }), 'There is no option "lease"'],
  [
    (locks) => locks.withLock('k', ran as never, { ttlMs: 1_000 } as never),
    'withLock(key, options, work) needs a function as its last argument: got object.',
  ],
];

it('wrong options of calls are refused before anything is sent, with what to do', async () => {
  const server = await redisServer();
  await loadScripts(server);
  const locks = await openLocks({ redis: server.url, marginMs: 100 });
  for (const [call, message] of OF_CALLS) {
    const calling = call(locks);
    await expect(calling).rejects.toThrow(message);
    await expect(calling).rejects.toMatchObject({ code: 'LOCK_OPTIONS', status: 500 });
  }
  expect(await scriptCalls(server)).toBe(0);
});

it('wrong keys are refused, and all others accepted, up to 1 KiB', async () => {
  const locks = await openLocks({ memory: true });
  for (const wrong of ['', undefined, null, 7, 'ü'.repeat(513), '}x']) {
    const key = untyped<string>(wrong);
    const set = untyped<string[]>(typeof wrong === 'string' ? ['a', wrong] : [wrong]);
    for (const call of [
      () => locks.acquire(key),
      () => locks.tryAcquire(key),
      () => locks.withLock(key, ran),
      () => locks.inspect(key),
      () => locks.isLocked(key),
      () => locks.forceRelease(key),
      () => locks.acquireAll(set),
    ])
      await expect(call()).rejects.toMatchObject({ code: 'LOCK_KEY', status: 500 });
  }
  await expect(locks.acquireAll(untyped('abc'))).rejects.toThrow('keys must be an array of keys: got "abc"');
  await expect(locks.acquireAll([])).rejects.toThrow('1 to 100 keys: got 0');
  await expect(locks.acquireAll(Array.from({ length: 101 }, (_, at) => `k${at}`))).rejects.toThrow('got 101');
  for (const key of ['ü'.repeat(512), ' ', 'a}b{c', '\n', '{', 'order:7', '锁'])
    expect(await locks.withLock(key, (lock) => lock.key)).toBe(key);
});

describe('a Redis may be given as', () => {
  const SOURCES: [what: string, source: () => unknown][] = [
    ['a host, and options that are undefined', () => ({ host: 'a', url: undefined, port: undefined })],
    ['a port as a variable of the environment has it', () => ({ host: 'a', port: '6380', db: '3' })],
    ['the path of a socket, where no host is known', () => ({ path: '/tmp/redis.sock', host: undefined })],
    ['Sentinels', () => ({ sentinels: [{ host: 'a' }], name: 'main' })],
    ['the options of another client', () => optionsOf({})],
    ['the options of another client for Sentinels', () => optionsOf({ sentinels: [{ host: 'a' }], name: 'main' })],
    ['the options of another client for a socket', () => optionsOf({ path: '/tmp/redis.sock' })],
    ['an object of a class', () => Object.assign(new (class Config {})(), { host: 'a' })],
    ['an object without a prototype', () => Object.assign(Object.create(null), { host: 'a' })],
    ['a url, and what no URL says', () => ({ url: 'redis://[::1]', RESP: 2, socket: { host: '::1' } })],
    ['the options of another client of node-redis', () => ({ ...createClient({ url: 'rediss://:pw@a:1/3' }).options })],
    ['a socket in options of node-redis', () => ({ socket: { host: 'a', port: 6380 }, database: 3, name: 'mine' })],
    ['the path of a socket in options of node-redis', () => ({ socket: { path: '/tmp/redis.sock', tls: false } })],
    ['nodes with TLS', () => ({ rootNodes: [{ url: 'rediss://a' }], defaults: { socket: { tls: true } } })],
    ['Sentinels in options of node-redis', () => ({ sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main' })],
    ['a client of a Cluster', () => cluster()],
    ['a client of a Cluster with a whole hash tag as its key prefix', () => cluster('{app}:')],
    ['a client of node-redis for a Cluster', () => createCluster({ rootNodes: [{ url: 'redis://a' }] })],
    [
      'a client of node-redis for Sentinels',
      () => createSentinel({ name: 'main', sentinelRootNodes: [{ host: 'a', port: 1 }] }),
    ],
    ['a URL', () => 'rediss://user:secret@a:6380/3'],
    ['the path of a socket as a text', () => '/tmp/redis.sock'],
  ];

  it.each(SOURCES)('%s', async (_, source) => {
    await openLocks({ redis: source() as RedisSource, lazyConnect: true });
  });

  it.each(['a{b:', '{', 'a{}:'])('but not as a client of a Cluster with the key prefix %s', async (keyPrefix) => {
    const problem = `must have no braces, or a complete hash tag: got "${keyPrefix}"`;
    await expect(openLocks({ redis: cluster(keyPrefix), lazyConnect: true })).rejects.toThrow(problem);
  });

  const optionsOf = (given: RedisOptions) => ({ ...new Redis({ ...given, lazyConnect: true }).options });

  function cluster(keyPrefix?: string): Cluster {
    const client = new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true, keyPrefix });
    onTestFinished(() => client.disconnect());
    return client;
  }
});
