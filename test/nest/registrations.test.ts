import { Inject, Injectable, Module, type DynamicModule, type ModuleMetadata, type Type } from '@nestjs/common';
import { LazyModuleLoader } from '@nestjs/core';
import type { TestingModule } from '@nestjs/testing';
import { Redis } from 'ioredis';
import { LockOptionsError, LockService, RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { startModules } from '../support/nest-app.js';

type Options = RedisLockModuleOptions & { name?: string; isGlobal?: boolean };

function moduleOf(name: string, metadata: ModuleMetadata): Type {
  const made = { [name]: class {} }[name]!;
  Module(metadata)(made);
  return made;
}

type Imports = NonNullable<ModuleMetadata['imports']>;

const start = (...imports: Imports): Promise<TestingModule> =>
  startModules({ imports: [moduleOf('AppModule', { imports })] });

@Injectable()
class ByConstructor {
  constructor(readonly locks: LockService) {}
}

describe('without forRoot RedisLockModule is refused, and the modules are named', () => {
  const bare = (name: string, ...providers: Type[]) => moduleOf(name, { imports: [RedisLockModule], providers });
  const NOTHING = 'RedisLockModule without forRoot, which registers nothing.';

  it('RedisLockModule without forRoot is refused where it is the only one, and its module is named [G212]', async () => {
    const starting = start(bare('OrdersModule'));
    await expect(starting).rejects.toThrow(
      `OrdersModule imports ${NOTHING} Write RedisLockModule.forRoot({ … }) or forRootAsync({ … }) there.`,
    );
    await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
  });

  it('RedisLockModule without forRoot is refused where another module registers it for all, and the modules are named [G213]', async () => {
    const locks = RedisLockModule.forRoot({ memory: true });
    for (const order of [
      [locks, bare('OrdersModule', ByConstructor)],
      [bare('OrdersModule', ByConstructor), locks],
    ]) {
      await expect(start(...order)).rejects.toThrow(
        `OrdersModule imports ${NOTHING} AppModule registers it for all modules: remove it from the imports of OrdersModule.`,
      );
    }
  });

  it('RedisLockModule without forRoot is refused where another module registers it for itself, and the modules are named [G214]', async () => {
    const local = RedisLockModule.forRootAsync({ useFactory: () => ({ memory: true }), isGlobal: false });
    await expect(start(moduleOf('StockModule', { imports: [local] }), bare('OrdersModule'))).rejects.toThrow(
      `OrdersModule imports ${NOTHING} StockModule registers it: keep the result of its forRoot in a constant, and ` +
        'import that.',
    );
  });

  it('RedisLockModule without forRoot is refused where several modules import it, and all of them are named [G215]', async () => {
    const starting = start(RedisLockModule.forRoot({ memory: true }), bare('OrdersModule'), bare('StockModule'));
    await expect(starting).rejects.toThrow(
      `OrdersModule and StockModule import ${NOTHING} AppModule registers it for all modules: remove it from the ` +
        'imports of OrdersModule and StockModule.',
    );
  });
});

describe('two registrations under one name', () => {
  const twice = (first: Options | DynamicModule, second: Options | DynamicModule) => {
    const [one, other] = [first, second].map((each) => ('module' in each ? each : RedisLockModule.forRoot(each)));
    return start(moduleOf('OrdersModule', { imports: [one!] }), moduleOf('StockModule', { imports: [other!] }));
  };
  const client = (): Redis => {
    const made = new Redis({ lazyConnect: true });
    onTestFinished(() => made.disconnect());
    return made;
  };
  const lazily = { lazyConnect: true, shutdownTimeoutMs: 0 };

  // Nothing closes the clients of an application that does not start: they would reconnect forever.
  beforeEach(() => {
    vi.spyOn(Redis.prototype, 'connect').mockResolvedValue();
  });
  afterEach(async () => {
    await new Promise(setImmediate); // a client may be made after the refusal
    vi.restoreAllMocks();
  });

  type Each = Options | DynamicModule;
  const factory = (options: RedisLockModuleOptions) => RedisLockModule.forRootAsync({ useFactory: () => options });
  const other = (): Redis => new Proxy(client(), {});

  it.each<[what: string, differing: string, first: () => Each, second: () => Each]>([
    ['a setting', 'ttlMs', () => ({ memory: true }), () => ({ memory: true, ttlMs: 5_000 })],
    [
      'a server',
      'redis',
      () => ({ redis: 'redis://:hunter2@a', ...lazily }),
      () => ({ redis: { host: 'b', password: 'hunter2' }, ...lazily }),
    ],
    [
      'a kind of backend',
      'redis, memory',
      () => ({ redis: 'redis://a', ...lazily }),
      () => ({ memory: true, ...lazily }),
    ],
    [
      'a client, though both are alike',
      'redis',
      () => ({ redis: client(), ...lazily }),
      () => ({ redis: other(), ...lazily }),
    ],
    ['a function', 'redis', () => ({ redis: () => client(), ...lazily }), () => ({ redis: () => client(), ...lazily })],
    [
      'what factories return',
      'keyPrefix, fair',
      () => factory({ memory: true }),
      () => factory({ memory: true, keyPrefix: 'mine', fair: true }),
    ],
  ])(
    'two modules whose registrations differ in %s are refused, and named [G210]',
    async (_, differing, first, second) => {
      const starting = twice(first(), second());
      const problem = await starting.catch((error: unknown) => error);
      expect(problem).toBeInstanceOf(LockOptionsError);
      const message = (problem as Error).message;
      expect(message.replace('StockModule and OrdersModule', 'OrdersModule and StockModule')).toBe(
        `OrdersModule and StockModule register RedisLockModule under the same name, "default", but with different options ` +
          `(${differing}): their locks would not exclude each other. Register it once, or give one of them a name.`,
      );
    },
  );

  it('two equal registrations under one name are one: their locks exclude each other, and a nested call enters [G211]', async () => {
    const parts = ['OrdersModule', 'StockModule'].map((name) => {
      @Injectable()
      class Part {
        constructor(@Inject(LockService) readonly locks: LockService) {}
      }
      const imports = [RedisLockModule.forRoot({ memory: true, isGlobal: false })];
      return { Part, module: moduleOf(name, { imports, providers: [Part] }) };
    });
    const app = await start(...parts.map(({ module }) => module));
    const [orders, stock] = parts.map(({ Part }) => app.get(Part).locks);
    await orders!.withLock('x', () => stock!.withLock('x', { waitMs: 0 }, () => 'entered'));
    const held = await orders!.acquire('x');
    expect(await stock!.tryAcquire('x')).toBeNull();
    await held.release();
  });

  it.each<[what: string, one: () => Each, other: () => Each]>([
    ['written twice', () => ({ memory: true, ttlMs: 5_000 }), () => ({ memory: true, ttlMs: 5_000 })],
    ['with a default written out', () => ({ memory: true }), () => ({ memory: true, ttlMs: 30_000, name: 'default' })],
    ['for a module and for all', () => ({ memory: true, isGlobal: false }), () => ({ memory: true })],
    ['by a factory', () => ({ memory: true }), () => factory({ memory: true })],
  ])('are one when they are equal, %s: there is one service', async (_, one, second) => {
    const app = await twice(one(), second());
    expect(new Set(app.get(LockService, { strict: false, each: true })).size).toBe(1);
  });

  it('of a lazy module are refused, or the same service; the application goes on', async () => {
    const app = await start(RedisLockModule.forRoot({ memory: true }));
    const lazy = (options: Options) => moduleOf('LazyModule', { imports: [RedisLockModule.forRoot(options)] });
    const loader = app.get(LazyModuleLoader);
    await expect(loader.load(() => lazy({ memory: true, fair: true }))).rejects.toThrow(
      /^AppModule and .+ register RedisLockModule under the same name, "default", but with different options \(fair\)/,
    );
    const loaded = await loader.load(() => lazy({ memory: true }));
    expect(loaded.get(LockService, { strict: false })).toBe(app.get(LockService));
    expect(await app.get(LockService).withLock('x', () => 'ran')).toBe('ran');
  });
});
