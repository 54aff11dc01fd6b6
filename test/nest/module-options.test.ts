import { Injectable, type DynamicModule } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  LockOptionsError,
  RedisLockModule,
  type RedisLockModuleOptions,
  type RedisLockOptionsFactory,
} from 'nest-redis-lock';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { letVote } from '../support/let-vote.js';
import { RecordingLogger } from '../support/nest-app.js';
import { RedisServer } from '../support/redis-server.js';

/** What a JavaScript user may write. */
type Unchecked = RedisLockModuleOptions;

async function start(registration: () => DynamicModule, log = new RecordingLogger()): Promise<RecordingLogger> {
  const app = await Test.createTestingModule({ imports: [registration()] })
    .setLogger(log)
    .compile();
  onTestFinished(() => app.close());
  await app.init();
  return log;
}

const FORMS: Record<string, (options: Unchecked) => DynamicModule> = {
  forRoot: (options) => RedisLockModule.forRoot(options),
  useFactory: (options) => RedisLockModule.forRootAsync({ useFactory: async () => options }),
  useClass: (options) => {
    @Injectable()
    class Factory implements RedisLockOptionsFactory {
      createRedisLockOptions(): RedisLockModuleOptions {
        return options;
      }
    }
    return RedisLockModule.forRootAsync({ useClass: Factory });
  },
};

const BAD: [options: object | undefined, message: string][] = [
  [{}, 'Exactly one of redis, redlock and memory is expected: got none of them.'],
  [{ redis: 'redis://a', memory: true }, 'Exactly one of redis, redlock and memory is expected: got redis and memory.'],
  [{ memory: false }, 'memory must be true: got false.'],
  [{ redis: 'localhost:6379' }, 'redis must be a redis:// or rediss:// URL, options or a client of ioredis'],
  [{ redis: 5 }, 'redis must be a redis:// or rediss:// URL, options or a client of ioredis'],
  [{ redlock: 'redis://a' }, 'redlock must be an array of Redis servers: got "redis://a".'],
  [{ redlock: ['redis://a'] }, 'redlock needs at least 3 independent masters: got 1. With one server use redis.'],
  [{ redlock: ['redis://a', 'redis://b'] }, 'redlock needs at least 3 independent masters: got 2.'],
  [{ redlock: ['redis://a', 'redis://b', 7] }, 'redlock[2] must be a redis:// or rediss:// URL'],
  [{ memory: true, ttl: 5 }, 'There is no option "ttl": expected ttlMs, waitMs'],
  [{ memory: true, ttlMs: 19 }, 'ttlMs must be a whole number of milliseconds from 20 to 86400000: got 19.'],
  [{ memory: true, ttlMs: '5000' }, 'ttlMs must be a whole number of milliseconds from 20 to 86400000: got "5000".'],
  [{ memory: true, waitMs: -1 }, 'waitMs must be a whole number of milliseconds from 0 to 2147483647: got -1.'],
  [{ memory: true, waitMs: NaN }, 'waitMs must be a whole number of milliseconds from 0 to 2147483647: got NaN.'],
  [{ memory: true, waitMs: Infinity }, 'waitMs must be a whole number of milliseconds'],
  [{ memory: true, watchdog: 'on' }, 'watchdog must be true or false: got "on".'],
  [{ memory: true, reentrant: 1 }, 'reentrant must be true or false: got 1.'],
  [{ memory: true, onLost: 'throw' }, 'onLost must be "reject" or "ignore": got "throw".'],
  [{ memory: true, keyPrefix: '' }, 'keyPrefix must be a string of 1 to 200 characters without braces: got "".'],
  [{ memory: true, keyPrefix: 'a{b' }, 'keyPrefix must be a string of 1 to 200 characters without braces: got "a{b".'],
  [{ memory: true, commandTimeoutMs: 5 }, 'commandTimeoutMs must be a whole number of milliseconds from 10 to 60000'],
  [
    { memory: true, ttlMs: 1_000, marginMs: 950 },
    'marginMs must leave a tenth of ttlMs: got marginMs 950 with ttlMs 1000.',
  ],
  [{ memory: true, lazyConnect: 'yes' }, 'lazyConnect must be true or false: got "yes".'],
  [{ memory: true, connectTimeoutMs: 0 }, 'connectTimeoutMs must be a whole number of milliseconds from 10 to 600000'],
  [
    { memory: true, shutdownTimeoutMs: -5 },
    'shutdownTimeoutMs must be a whole number of milliseconds from 0 to 600000',
  ],
];

describe.each(Object.entries(FORMS))('with %s the application does not start', (_form, registration) => {
  it.each(BAD)('with %o', async (options, message) => {
    const starting = start(() => registration(options as Unchecked));
    await expect(starting).rejects.toThrow(message);
    await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
  });
});

it('does not start without options', async () => {
  const starting = start(() => RedisLockModule.forRoot(undefined as never));
  await expect(starting).rejects.toThrow(
    'the argument of RedisLockModule.forRoot must be an object with options: got undefined.',
  );
  const factory = start(() => RedisLockModule.forRootAsync({ useFactory: () => undefined as never }));
  await expect(factory).rejects.toThrow('options must be an object: got undefined.');
});

it.each<[object | undefined, string]>([
  [undefined, 'the argument of RedisLockModule.forRootAsync must be an object with options: got undefined.'],
  [{}, 'forRootAsync needs exactly one of useFactory, useClass, useExisting: got none of them.'],
  [
    { useFactory: () => ({}), useClass: class {} },
    'exactly one of useFactory, useClass, useExisting: got useFactory and useClass.',
  ],
  [{ redis: 'redis://a' }, 'RedisLockModule.forRootAsync has no option "redis": expected useFactory'],
])('does not take %o for forRootAsync', async (options, message) => {
  await expect(start(() => RedisLockModule.forRootAsync(options as never))).rejects.toThrow(message);
});

it.each<[object, string]>([
  [{ isGlobal: 'yes' }, 'isGlobal must be true or false: got "yes".'],
  [{ name: '' }, 'name must be the name of a registration: got "".'],
  [{ name: 7 }, 'name must be the name of a registration: got 7.'],
])('does not take %o beside the options', async (extras, message) => {
  await expect(start(() => RedisLockModule.forRoot({ memory: true, ...extras }))).rejects.toThrow(message);
  const form = { useFactory: () => ({ memory: true as const }), ...extras };
  await expect(start(() => RedisLockModule.forRootAsync(form))).rejects.toThrow(message);
});

it.each(['name', 'isGlobal'])('says where %s goes when a factory returns it', async (extra) => {
  const options = { memory: true, [extra]: 'billing' } as Unchecked;
  await expect(start(() => RedisLockModule.forRootAsync({ useFactory: () => options }))).rejects.toThrow(
    new RegExp(
      `^There is no option "${extra}": .* name and isGlobal go beside useFactory, not into what it returns\\.$`,
    ),
  );
});

it('does not repeat a password of a URL that cannot be used', async () => {
  const starting = start(() => RedisLockModule.forRoot({ redis: 'tcp://user:hunter2@localhost' }));
  await expect(starting).rejects.toThrow(
    /^redis must be .*: got a string of another form\. Write redis:\/\/host:port, or the \/path of a socket\. Special characters .*$/,
  );
  await expect(starting).rejects.not.toThrow('hunter2');
});

it('says that the URL is empty, as a variable that is not set leaves it', async () => {
  await expect(start(() => RedisLockModule.forRoot({ redis: '' }))).rejects.toThrow(
    /: got an empty string\. Is the variable that it comes from set\?$/,
  );
});

describe('with Redlock', () => {
  let servers: RedisServer[];
  beforeAll(async () => {
    servers = await letVote(await Promise.all([1, 2, 3, 4].map(() => RedisServer.start())));
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  it('warns of an even number of nodes', async () => {
    const redlock = servers.map((server) => server.url);
    const log = await start(() => RedisLockModule.forRoot({ redlock, lazyConnect: true }));
    expect(log.lines).toContain('warn redlock has 4 nodes, which tolerate no more failures than 3: use an odd number.');
  });

  it('does not take the same node twice', async () => {
    const [first, second] = servers.map((server) => server.url);
    await expect(start(() => RedisLockModule.forRoot({ redlock: [first!, second!, first!] }))).rejects.toThrow(
      `redlock needs independent masters: got 127.0.0.1:${servers[0]!.port} twice.`,
    );
  });
});
