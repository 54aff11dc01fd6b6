import { Test } from '@nestjs/testing';
import { LockService } from 'nest-redis-lock';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { failureOf } from '../support/failed-start.js';
import { RedisServer } from '../support/redis-server.js';
import { COUNTER } from '../support/stored.js';
import { examplesOf, exampleWith, generate, modulesOf, read, REASONS, STOCK } from './compile.js';

let redis: RedisServer;

beforeAll(async () => {
  redis = await RedisServer.start();
  process.env.REDIS_URL = redis.url;
});

afterAll(async () => {
  await redis.stop();
});

type Class<T = object> = new (...args: never[]) => T;

describe('the README', () => {
  type Shop = { sell(sku: string): Promise<void> };

  async function setCount(sku: string, count: number): Promise<void> {
    const { Stock } = (await import(/* @vite-ignore */ generate('stock.ts', STOCK))) as {
      Stock: Class<{ setCount(sku: string, count: number): Promise<void> }>;
    };
    await new Stock().setCount(sku, count);
  }

  /**
   * Runs its shop as two instances, which get ten buyers each for five boxes.
   * @returns how many boxes they sell
   */
  async function soldByTwo(file: string, edit: (source: string) => string): Promise<number> {
    await setCount('tea', 5);
    const source = examplesOf('README.md')[0]!.replace('redis://localhost:6379', redis.url);
    const shop = (await import(/* @vite-ignore */ generate(file, edit(source)))) as {
      Shop: Class<Shop>;
      ShopModule: Class;
    };
    const instances = await Promise.all(
      [1, 2].map(() => Test.createTestingModule({ imports: [shop.ShopModule] }).compile()),
    );
    const buyers = Array.from({ length: 10 }, () => instances.map((instance) => instance.get(shop.Shop).sell('tea')));
    const outcomes = await Promise.allSettled(buyers.flat());
    await Promise.all(instances.map((instance) => instance.close()));
    return outcomes.filter(({ status }) => status === 'fulfilled').length;
  }

  it('shows a method that sells boxes which are not there, without its decorator', async () => {
    expect(await soldByTwo('unlocked-shop.ts', (source) => source.replace(/@Locked\(.*/, ''))).toBeGreaterThan(5);
  });

  it('shows a decorator with which two instances sell no more than there is', async () => {
    expect(await soldByTwo('locked-shop.ts', (source) => source)).toBe(5);
  });

  it('shows a test of an application that needs no Redis', async () => {
    await redis.command('FLUSHALL');
    await setCount('tea', 1);
    await import(/* @vite-ignore */ modulesOf('README.md')[1]!);
    expect(await redis.keys()).toEqual([]);
  });
});

describe('docs/start.md', () => {
  type Examples = {
    OrderModule: Class;
    OrderService: Class<{ pay(id: string): Promise<string> }>;
    OrdersController: Class;
    ReportService: Class<{ build(id: string): Promise<number>; byHand(): Promise<void> }>;
    NightlyJobs: Class<{ runs: number; cleanUp(): Promise<void> }>;
  };

  /** The declarations of its examples, by name. */
  async function examples(): Promise<Examples> {
    const examples = {};
    // One after the other: of two imports of the same module at once, each may get its own copy.
    for (const path of modulesOf('docs/start.md')) Object.assign(examples, await import(/* @vite-ignore */ path));
    return examples as Examples;
  }

  it('has examples that lock on a real Redis', async () => {
    const { OrderModule, OrderService, OrdersController, ReportService, NightlyJobs } = await examples();
    const { StockService } = await exampleWith<{
      StockService: Class<{ move(order: object, to: string): Promise<void>; takeStock(): Promise<void> }>;
    }>('docs/handlers.md', 'class StockService');
    const testing = await Test.createTestingModule({
      imports: [OrderModule],
      controllers: [OrdersController],
      providers: [StockService, ReportService, NightlyJobs],
    }).compile();
    const app = testing.createNestApplication();
    await app.listen(0, '127.0.0.1');
    const keys = new Set<string>();
    app.get(LockService).events$.subscribe(({ type, key }) => type === 'acquired' && keys.add(key));

    expect(await app.get(OrderService).pay('17')).toBe('17 is paid');
    await app.get(StockService).move({ sku: 'x:y' }, 'z');
    await app.get(StockService).takeStock();
    expect(await app.get(ReportService).build('9')).toBeGreaterThan(1e15);
    await app.get(ReportService).byHand();
    await app.get(NightlyJobs).cleanUp();
    expect(app.get(NightlyJobs).runs).toBe(1);
    const url = await app.getUrl();
    const paid = await fetch(`${url}/orders/18/pay`, { method: 'POST' });
    expect(await paid.text()).toBe('18 is paid');
    expect((await fetch(`${url}/orders/import`, { method: 'POST' })).status).toBe(201);
    await app.get(LockService).withLock('short', (lock) => expect(lock.remainingMs).toBeLessThan(15_000));

    expect([...keys].sort()).toEqual([
      'import:127.0.0.1',
      'nightly',
      'order:17',
      'order:18',
      'report',
      'report:9',
      'short',
      'stock-taking',
      'stock:x%3Ay:z',
    ]);
    await app.get(LockService).forceRelease('nightly'); // kept for its holdMs
    expect(await redis.keys('lock:*')).toEqual([COUNTER]);
    await app.close();
  });

  it('answers contention without an error in the log, with the filter of docs/errors.md', async () => {
    const { OrderModule, OrdersController } = await examples();
    const { LockErrorsModule } = await exampleWith<{ LockErrorsModule: Class }>(
      'docs/errors.md',
      'class LockErrorsModule',
    );
    const errors: unknown[] = [];
    const logger = { log() {}, warn() {}, debug() {}, error: (...entry: unknown[]) => errors.push(entry) };
    const testing = await Test.createTestingModule({
      imports: [OrderModule, LockErrorsModule],
      controllers: [OrdersController],
    })
      .setLogger(logger)
      .compile();
    const app = testing.createNestApplication();
    await app.listen(0, '127.0.0.1');

    const lock = await app.get(LockService).acquire('import:127.0.0.1');
    const refused = await fetch(`${await app.getUrl()}/orders/import`, { method: 'POST' });
    expect(refused.status).toBe(409);
    expect(await refused.json()).toMatchObject({ statusCode: 409, code: 'LOCK_CONTENDED' });
    expect(errors).toEqual([]);
    await lock.release();
    await app.close();
  });
});

it('the tables of docs/options.md and docs/tuning.md name every option', async () => {
  const complaint = await failureOf({ memory: true, surely: 'not' } as never);
  const options = /expected ([^.]*)\./.exec(complaint.message)![1]!.split(', ');
  expect(options).toContain('ttlMs');
  const pages = ['options', 'tuning'].map((page) => read(`docs/${page}.md`)).join('\n');
  const named = [...pages.matchAll(/^\| `(\w+)`/gm)].map((match) => match[1]!);
  expect(named).toEqual(expect.arrayContaining(options));
});

it('the tables of docs/errors.md name every error and every reason of a loss', async () => {
  const page = read('docs/errors.md');
  const named = [...page.matchAll(/^\| `([\w]+)`/gm)].map((match) => match[1]!);
  const errors = Object.keys(await import('nest-redis-lock')).filter(
    (name) => /^(Lock|Stale)\w+Error$/.test(name) && name !== 'LockError',
  );
  expect([...named].sort()).toEqual([...errors, ...Object.keys(REASONS), 'reason'].sort());
});
