import { Injectable, Module, type DynamicModule } from '@nestjs/common';
import type { TestingModule } from '@nestjs/testing';
import {
  LockOptionsError,
  LockService,
  RedisLockModule,
  type RedisLockModuleOptions,
  type RedisLockOptionsFactory,
} from 'nest-redis-lock';
import { LocksPageModule } from 'nest-redis-lock/page';
import { LockTestingModule } from 'nest-redis-lock/testing';
import { expect, it } from 'vitest';
import { RecordingLogger, startModules } from '../support/nest-app.js';

const start = (registration: () => DynamicModule): Promise<TestingModule> =>
  Promise.resolve().then(() => startModules({ imports: [registration()] }));

it.each<[object | undefined, string]>([
  [undefined, 'the argument of RedisLockModule.forRootAsync must be an object with options: got undefined.'],
  [{}, 'forRootAsync needs exactly one of useFactory, useClass, useExisting: got none of them.'],
  [
    { useFactory: () => ({}), useClass: class {} },
    'exactly one of useFactory, useClass, useExisting: got useFactory and useClass.',
  ],
  [[], 'the argument of RedisLockModule.forRootAsync must be an object with options: got an array.'],
  [{ useFactory: { memory: true } }, 'useFactory must be a function that returns options: got an object.'],
  [{ useFactory: class {} }, 'useFactory must be a function that returns options: got a function.'],
  [{ useClass: { memory: true } }, 'useClass must be a class that creates options: got an object.'],
  [{ useClass: () => ({}) }, 'useClass must be a class that creates options: got a function.'],
  [{ imports: class {}, useFactory: () => ({}) }, 'imports must be an array of modules: got a function.'],
  [{ inject: 'Config', useFactory: () => ({}) }, 'inject must be an array of tokens: got "Config".'],
  [{ redis: 'redis://a' }, 'RedisLockModule.forRootAsync has no option "redis": expected useFactory'],
])('an application does not start with %o for forRootAsync', async (options, message) => {
  await expect(start(() => RedisLockModule.forRootAsync(options as never))).rejects.toThrow(message);
});

it.each<[options: object | undefined, message: string]>([
  [undefined, 'must be an object'],
  [[], 'must be an object'],
  [{}, 'Exactly one of redis, redlock and memory is expected: got none of them.'],
  [{ redis: '' }, ': got an empty string. Is the variable that it comes from set?'],
  [
    { redis: 'tcp://user:hunter2@localhost' },
    'got a string of another form. Write redis://host:port, or the /path of a',
  ],
  [{ redis: 5 }, 'redis must be a redis:// or rediss:// URL, options or a client of ioredis'],
  [{ redlock: ['redis://a:1', 'redis://b', 'redis://a:1'] }, 'redlock needs independent masters: got a:1 twice.'],
  [{ memory: true, connectTimeoutMs: 0 }, 'connectTimeoutMs must be a whole number of milliseconds from 10 to 600000'],
  [{ memory: true, onTransaction: 'refuse' }, 'onTransaction "refuse" needs the module option insideTransaction'],
  [
    { memory: true, insideTransaction: true },
    'insideTransaction must be a function that returns true or false: got true.',
  ],
])('an application does not start with the options %o, as they are or from a factory', async (options, message) => {
  for (const form of [
    () => RedisLockModule.forRoot(options as never),
    () => RedisLockModule.forRootAsync({ useFactory: () => options as never }),
  ]) {
    await expect(start(form)).rejects.toThrow(LockOptionsError);
    await expect(start(form)).rejects.toThrow(message);
    await expect(start(form)).rejects.not.toThrow('hunter2');
  }
});

it.each([
  [{ name: '' }, 'name must be the name of a registration: got "".'],
  [{ isGlobal: 'yes' as never }, 'isGlobal must be true or false: got "yes".'],
])(
  'an application does not start with %o next to its options, and a factory must not return that',
  async (extras, message) => {
    await expect(start(() => RedisLockModule.forRoot({ memory: true, ...extras }))).rejects.toThrow(message);
    const useFactory = () => ({ memory: true as const, ...extras });
    await expect(start(() => RedisLockModule.forRootAsync({ useFactory }))).rejects.toThrow(
      /^There is no option ".*: .* Put name and isGlobal next to useFactory, not into its result\.$/,
    );
  },
);

it.each([
  ...[null, [], Promise.resolve({})].map((options) => () => LockTestingModule.forRoot(options as never)),
  () => LockTestingModule.forRoot({ name: 5 as never }),
  () => LocksPageModule.register({ path: 'locks', guards: 'none', imports: class {} as never }),
])('the modules for tests and for the page refuse options of another type: %s', (register) => {
  expect(register).toThrow(LockOptionsError);
});

it('warns of an even number of nodes', async () => {
  const redlock = [1, 2, 3, 4].map((port) => `redis://127.0.0.1:${port}`);
  const log = new RecordingLogger();
  await startModules({ imports: [RedisLockModule.forRoot({ redlock, lazyConnect: true })] }, log);
  expect(log.lines).toContain(
    'warn redlock has 4 nodes, which tolerate no more failures than 3 nodes: use an odd number.',
  );
});

@Injectable()
class Settings {
  readonly ttlMs = 90_000;
}
@Module({ providers: [Settings], exports: [Settings] })
class SettingsModule {}
@Injectable()
class Factory implements RedisLockOptionsFactory {
  constructor(private readonly settings: Settings) {}

  createRedisLockOptions(): RedisLockModuleOptions {
    return { memory: true, ttlMs: this.settings.ttlMs };
  }
}
@Module({ imports: [SettingsModule], providers: [Factory], exports: [Factory] })
class FactoryModule {}

it.each<[form: string, options: Parameters<typeof RedisLockModule.forRootAsync>[0]]>([
  [
    'useFactory',
    {
      imports: [SettingsModule],
      inject: [Settings],
      useFactory: async ({ ttlMs }: Settings) => ({ memory: true, ttlMs }),
    },
  ],
  ['useClass', { imports: [SettingsModule], useClass: Factory }],
  ['useExisting', { imports: [FactoryModule], useExisting: Factory }],
])('locks have the options that other providers know: %s', async (_, options) => {
  const app = await start(() => RedisLockModule.forRootAsync(options));
  const remainingMs = await app.get(LockService).withLock('x', (lock) => lock.remainingMs);
  expect(Math.ceil(remainingMs / 60_000)).toBe(2);
});
