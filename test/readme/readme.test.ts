import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Test } from '@nestjs/testing';
import { LockService } from 'nest-redis-lock';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RedisServer } from '../support/redis-server.js';
import { COUNTER } from '../support/stored.js';
import { compile, examplesOf, generate, modulesOfDocs } from './compile.js';

/** What the examples use without importing it, for shortness; the last one is a body of a function. */
const PRELUDE = `
import { Controller, Get, Injectable, Module, Param, Post } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import {
  fromContext, type LockDiagnosis, Locked, LockExceptionFilter, lockKey, LockService, RedisLockModule, type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { LockedCron } from 'nest-redis-lock/schedule';
import { LockBench, LockTestingModule } from 'nest-redis-lock/testing';
export interface Order { sku: string }
`;

const root = fileURLToPath(new URL('../..', import.meta.url));
let generated: string;
let redis: RedisServer;

beforeAll(async () => {
  redis = await RedisServer.start();
  process.env.REDIS_PORT = String(redis.port);
  const blocks = examplesOf('README.md').map((block) => block.replace(/^import .*\n/gm, ''));
  const test = `export async function testing() {\n${blocks.pop()}\n}\n`;
  const source = [PRELUDE, ...blocks, test].join('\n');
  generated = generate(
    'readme.ts',
    source.replaceAll('redis://localhost:6379', redis.url).replace("'localhost'", "'127.0.0.1'"),
  );
});

afterAll(async () => {
  await redis.stop();
});

/** The examples as a module: what they declare, by name. */
async function examples() {
  return (await import(/* @vite-ignore */ generated)) as {
    AppModule: new () => object;
    ConfiguredModule: new () => object;
    OrdersController: new () => object;
    HealthController: new () => object;
    OrderService: new () => { pay(id: string): Promise<string> };
    StockService: new () => { move(order: object, to: string): Promise<void>; reserve(order: object): Promise<void> };
    ReportService: new () => { build(id: string): Promise<number>; byHand(): Promise<void> };
    NightlyJobs: new () => { runs: number; cleanUp(): Promise<void> };
    LockErrorsModule: new () => object;
    testing(): Promise<void>;
  };
}

describe('the examples', () => {
  it('of the README and of docs compile with all checks on', { timeout: 120_000 }, () => {
    const ofDocs = modulesOfDocs();
    expect(ofDocs.length).toBeGreaterThan(15);
    expect(compile([generated, ...ofDocs])).toBe('');
  });
});

describe('the examples of the README', () => {
  it('lock on a real Redis in the first minute', async () => {
    const { AppModule, HealthController, OrderService, OrdersController, StockService, ReportService, NightlyJobs } =
      await examples();
    const testing = await Test.createTestingModule({
      imports: [AppModule],
      controllers: [HealthController, OrdersController],
      providers: [OrderService, StockService, ReportService, NightlyJobs],
    }).compile();
    const app = testing.createNestApplication();
    await app.listen(0, '127.0.0.1');
    const keys = new Set<string>();
    app.get(LockService).events$.subscribe(({ type, key }) => type === 'acquired' && keys.add(key));

    expect(await app.get(OrderService).pay('17')).toBe('17 is paid');
    await app.get(StockService).move({ sku: 'x:y' }, 'z');
    await app.get(StockService).reserve({ sku: 'tea' });
    expect(await app.get(ReportService).build('9')).toBeGreaterThan(1e15);
    await app.get(ReportService).byHand();
    await app.get(NightlyJobs).cleanUp();
    expect(app.get(NightlyJobs).runs).toBe(1);
    const url = await app.getUrl();
    const paid = await fetch(`${url}/orders/18/pay`, { method: 'POST' });
    expect(await paid.text()).toBe('18 is paid');
    expect((await fetch(`${url}/orders/import`, { method: 'POST' })).status).toBe(201);
    const health = await (await fetch(`${url}/health/locks`)).json();
    expect(health).toMatchObject({ healthy: true, report: { backend: 'redis', nodes: [{ reachable: true }] } });

    expect([...keys].sort()).toEqual([
      'import:127.0.0.1',
      'nightly',
      'order:17',
      'order:18',
      'report',
      'report:9',
      'stock:tea',
      'stock:x%3Ay:z',
    ]);
    await app.get(LockService).forceRelease('nightly'); // kept for its holdMs
    expect(await redis.keys('lock:*')).toEqual([COUNTER]);
    await app.close();
  });

  it('answer contention without an error in the log', async () => {
    const { AppModule, LockErrorsModule, OrdersController, OrderService } = await examples();
    const errors: unknown[] = [];
    const logger = { log() {}, warn() {}, debug() {}, error: (...entry: unknown[]) => errors.push(entry) };
    const testing = await Test.createTestingModule({
      imports: [AppModule, LockErrorsModule],
      controllers: [OrdersController],
      providers: [OrderService],
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

  it('are set up by a factory', async () => {
    const { ConfiguredModule } = await examples();
    const testing = await Test.createTestingModule({ imports: [ConfiguredModule] }).compile();
    const lock = await testing.get(LockService).acquire('x');
    expect(lock.remainingMs).toBeLessThan(15_000);
    await lock.release();
    await testing.close();
  });

  it('test an application without a Redis', async () => {
    await redis.command('FLUSHALL');
    const { testing } = await examples();
    await testing();
    expect(await redis.keys()).toEqual([]);
  });
});

describe('the options table', () => {
  const optionsOf = (page: string) =>
    [...readFileSync(`${root}${page}`, 'utf8').matchAll(/^\| `(\w+)`/gm)].map((match) => match[1]!);

  it('names every option there is', async () => {
    const { resolveOptions } = await import('../../lib/compose/redis-lock-options.js');
    const complaint = (() => {
      try {
        resolveOptions({ memory: true, surely: 'not' } as never);
        return '';
      } catch (error) {
        return (error as Error).message;
      }
    })();
    const options = /expected ([^.]*)\./.exec(complaint)![1]!.split(', ');
    expect(options).toContain('ttlMs');
    expect(optionsOf('docs/options.md')).toEqual(expect.arrayContaining(options));
  });

  it('has in the README no option that is not in docs/options.md', () => {
    const common = optionsOf('README.md').filter((name) => !name.startsWith('Lock') && !name.startsWith('Stale'));
    expect(common.length).toBeGreaterThan(8);
    expect(optionsOf('docs/options.md')).toEqual(expect.arrayContaining(common));
  });
});
