import { Controller, Get, Injectable, type DynamicModule, type ModuleMetadata } from '@nestjs/common';
import { HealthCheckService, TerminusModule } from '@nestjs/terminus';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  getLockServiceToken,
  Locked,
  LockOptionsError,
  LockService,
  LockUnavailableError,
  WhileLeader,
  type Leadership,
  type LockEvent,
} from 'nest-redis-lock';
import {
  LockModule,
  type LockModuleOptions,
  type LockOptionsFactory,
  type PromiseBackend,
} from 'nest-redis-lock/backend';
import { LocksPageModule } from 'nest-redis-lock/page';
import { LockHealthIndicator } from 'nest-redis-lock/terminus';
import { expect, it, onTestFinished } from 'vitest';
import { ToyWatched } from '../contract/toy-watched.js';
import { Gate } from '../support/gate.js';
import { RecordingLogger, startModules } from '../support/nest-app.js';
import { until, whenAborted } from '../support/until.js';

const now = () => performance.now();
const toy = () => new ToyWatched(now);
const throwing = () => {
  throw new Error('not yet');
};
const rejected = () => Promise.reject(new Error('connection refused'));

@Injectable()
class Shop {
  running = 0;
  most = 0;

  @Locked('order:{0}')
  async pay(id: string): Promise<string> {
    this.most = Math.max(this.most, ++this.running);
    await new Promise((resolve) => setTimeout(resolve, 5));
    this.running--;
    return `paid ${id}`;
  }
}

const start = (...imports: DynamicModule[]): Promise<TestingModule> => startModules({ imports, providers: [Shop] });
const on = (store: PromiseBackend, options: Partial<LockModuleOptions> & { name?: string } = {}): DynamicModule =>
  LockModule.forRoot({ shutdownTimeoutMs: 0, ...options, backend: () => store });
const serviceOf = (app: TestingModule, name?: string): LockService => app.get(getLockServiceToken(name));

/**
 * Checks that the module refuses it.
 * @returns the message
 */
async function refusalOf(...imports: DynamicModule[]): Promise<string> {
  const refusal: unknown = await start(...imports).catch((error: unknown) => error);
  expect(refusal).toBeInstanceOf(LockOptionsError);
  return (refusal as Error).message;
}

const FORMS: Record<string, (options: LockModuleOptions) => DynamicModule> = {
  forRoot: (options) => LockModule.forRoot(options),
  useFactory: (options) => LockModule.forRootAsync({ useFactory: async () => options }),
  useClass: (options) => {
    @Injectable()
    class Factory implements LockOptionsFactory {
      createLockOptions(): LockModuleOptions {
        return options;
      }
    }
    return LockModule.forRootAsync({ useClass: Factory });
  },
};

it.each(Object.entries(FORMS))(
  'two applications with LockModule, by %s, have their locks in a store of their own, which is made once for each and closed with it [G1095]',
  async (_form, registration) => {
    const store = toy();
    let made = 0;
    const backend = async () => (made++, store);
    const apps = await Promise.all([1, 2].map(() => start(registration({ backend }))));
    const shops = apps.map((app) => app.get(Shop));
    const ids = [1, 2, 3].flatMap(() => shops.map((shop) => shop.pay('7')));
    expect(new Set(await Promise.all(ids))).toEqual(new Set(['paid 7']));
    expect(shops.map(({ most }) => most)).toEqual([1, 1]);
    expect(store.log).toContain('watch'); // the waiting call was woken
    await Promise.all(apps.map((app) => app.close()));
    expect(made).toBe(2);
    expect(store.log.filter((entry) => entry === 'close')).toHaveLength(2);
  },
);

it('the service on a store of your own has sets, holds, lists, forced releases, parcels, extensions and events, and says what the store lacks [G1096]', async () => {
  const bounds = { shortestTtlMs: { ms: 3_000, because: 'Its leases have whole seconds.' } };
  const locks = serviceOf(await start(on(Object.assign(toy(), { bounds }))));
  const events: LockEvent['type'][] = [];
  locks.events$.subscribe(({ type }) => events.push(type));

  const set = await locks.acquireAll(['a', 'b']);
  expect((await locks.list()).locks.map(({ key }) => key)).toEqual(['a', 'b']);
  expect(await locks.tryAcquireAll(['b', 'c'])).toBeNull();
  await set.release();

  await locks.withLock('kept', { holdMs: 5_000 }, async () => {});
  expect(await locks.inspect('kept')).toMatchObject({ keptUntil: expect.any(Date), waitingProcesses: undefined });

  const lock = await locks.acquire('c');
  await lock.extend();
  const adopted = await locks.adopt(await lock.detach({ ttlMs: 20_000 }));
  expect(adopted.fencingToken).toBeGreaterThan(lock.fencingToken);
  expect(await locks.forceRelease('c')).toBe(true);
  expect(adopted.isHeld).toBe(false);
  expect(events).toEqual(expect.arrayContaining(['acquired', 'released', 'detached', 'lost']));

  await expect(locks.acquire('d', { ttlMs: 2_000 })).rejects.toThrow('Its leases have whole seconds.');
  await expect(locks.withPermits('p', { limit: 2 }, async () => {})).rejects.toThrow(
    'It supports only exclusive locks.',
  );
  expect(await locks.diagnose()).toMatchObject({
    backend: 'toy',
    where: 'in toy',
    nodes: [{ name: 'toy', reachable: true }],
    findings: [],
  });
  expect(await locks.ping()).toMatchObject({ available: true, nodes: { voting: 1, of: 1 } });
});

it('leaders, health checks and the page of locks work on a store of your own [G1097]', async () => {
  @Controller()
  class Health {
    constructor(
      private readonly health: HealthCheckService,
      private readonly locks: LockHealthIndicator,
    ) {}

    @Get('ready')
    ready() {
      return this.health.check([() => this.locks.pingCheck('locks')]);
    }
  }
  @Injectable()
  class Relay {
    terms = 0;

    @WhileLeader('relay')
    async lead({ signal }: Leadership): Promise<void> {
      this.terms++;
      await whenAborted(signal);
    }
  }
  const store = toy();
  const open = async () => {
    const imports = [
      on(store),
      TerminusModule.forRoot({ logger: false }),
      LocksPageModule.register({ path: 'locks', guards: 'none' }),
    ];
    const metadata: ModuleMetadata = { imports, providers: [LockHealthIndicator, Relay], controllers: [Health] };
    const testing = await Test.createTestingModule(metadata).setLogger(new RecordingLogger()).compile();
    const app = testing.createNestApplication();
    onTestFinished(() => app.close());
    await app.listen(0, '127.0.0.1');
    return app;
  };
  const [first, second] = [await open(), await open()];
  await until(() => first.get(Relay).terms === 1, { what: 'the first leads' });
  const url = await second.getUrl();
  const details = { locks: { nodes: { voting: 1, of: 1 } } };
  expect(await (await fetch(`${url}/ready`)).json()).toMatchObject({ status: 'ok', details });
  expect((await fetch(`${url}/locks`)).status).toBe(200);
  expect(second.get(Relay).terms).toBe(0);
  await first.close();
  await until(() => second.get(Relay).terms === 1, { what: 'the second leads' });
});

it('an application does not start without a store of your own that it can reach, unless it connects lazily [G1098]', async () => {
  const down = { inspect: rejected, acquire: rejected };
  const starting = start(on(Object.assign(toy(), down), { connectTimeoutMs: 100 }));
  await expect(starting).rejects.toThrow(LockUnavailableError);
  await expect(starting).rejects.toThrow('toy: connection refused');
  const locks = serviceOf(await start(on(Object.assign(toy(), down), { lazyConnect: true })));
  await expect(locks.acquire('a')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
});

it('a store of your own that is made too late is closed, and its application does not start [G1099]', async () => {
  const late = new Gate();
  const store = toy();
  const backend = () => late.opened.then(() => store);
  const starting = start(LockModule.forRoot({ backend, connectTimeoutMs: 20 }));
  await expect(starting).rejects.toThrow(LockUnavailableError);
  await expect(starting).rejects.toThrow('backend() has returned no store within 20 ms.');
  late.open();
  await until(() => store.log.includes('close'), { what: 'the store is closed' });
  const failing = start(LockModule.forRoot({ backend: () => Promise.reject(new TypeError('no is undefined')) }));
  await expect(failing).rejects.toThrow(new TypeError('no is undefined'));
});

it.each<[options: object, message: string]>([
  [{}, 'backend must be a function that makes the store, as in backend: () => new MyStore(): got undefined.'],
  [{ backend: toy() }, 'as in backend: () => new MyStore(): got an object.'],
  [{ backend: ToyWatched }, 'as in backend: () => new MyStore(): got a class.'],
  [{ backend: () => undefined }, 'the result of backend() must be a store: got undefined.'],
  [
    { backend: () => ({ acquire() {}, list: 5 }) },
    'has no name, extend, release, inspect, list, forceRelease: see PromiseBackend.',
  ],
  [
    { backend: () => Object.assign(toy(), { attemptTimeoutMs: () => NaN }) },
    'attemptTimeoutMs() of the store must return a number of milliseconds up to 3600000: got NaN.',
  ],
  [{ backend: () => Object.assign(toy(), { attemptTimeoutMs: () => 0 }) }, 'up to 3600000: got 0.'],
  [{ backend: () => Object.assign(toy(), { attemptTimeoutMs: () => Infinity }) }, 'up to 3600000: got Infinity.'],
  [{ backend: () => Object.assign(toy(), { attemptTimeoutMs: () => 3_600_001 }) }, 'up to 3600000: got 3600001.'],
  [{ backend: () => Object.assign(toy(), { attemptTimeoutMs: () => '5' }) }, 'up to 3600000: got "5".'],
  [{ backend: () => Object.assign(toy(), { attemptTimeoutMs: 5 }) }, 'up to 3600000: TypeError: '],
  [
    {
      backend: () =>
        Object.assign(toy(), {
          attemptTimeoutMs: throwing,
        }),
    },
    'up to 3600000: Error: not yet.',
  ],
  [{ backend: toy, fair: true }, 'fair needs a queue that hands locks over, and the store toy has none: remove fair.'],
  [
    { backend: toy, commandTimeoutMs: 5 },
    'commandTimeoutMs must be a whole number of milliseconds from 10 to 60000: got 5.',
  ],
  [{ backend: toy, redis: 'redis://a' }, 'There is no option "redis": expected ttlMs,'],
  [{ store: toy }, 'Did you mean backend?'],
])('an application does not start with %o for LockModule [G1100]', async (options, message) => {
  for (const registration of [
    () => LockModule.forRoot(options as LockModuleOptions),
    () => LockModule.forRootAsync({ useFactory: () => options as LockModuleOptions }),
  ])
    expect(await refusalOf(registration())).toContain(message);
});

it('a release that a store refuses is logged in one line, and not as an outage of all locks', async () => {
  const log = new RecordingLogger();
  const { release } = ToyWatched.prototype;
  let asked = 0;
  const store = toy();
  store.release = (grant, how) => (++asked === 1 ? rejected() : release.call(store, grant, how));
  const app = await startModules({ imports: [on(store)] }, log);
  await serviceOf(app).withLock('order', () => {});
  await app.close();
  expect(log.lines).toEqual([
    'warn The release of lock "order" was not confirmed and is being retried: toy: connection refused.',
  ]);
});

it.each<[why: string, options: object, broken: object]>([
  ['has no queue that fair needs', { fair: true }, {}],
  ['throws when it is asked for its time', {}, { attemptTimeoutMs: throwing }],
])('a store of your own that is refused is closed, as one that %s', async (_why, options, broken) => {
  const store = Object.assign(toy(), broken);
  await refusalOf(on(store, options));
  expect(store.log).toEqual(['close']);
});
