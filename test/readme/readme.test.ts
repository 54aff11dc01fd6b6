import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Test } from '@nestjs/testing';
import { LockService } from 'nest-redis-lock';
import ts from 'typescript';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RedisServer } from '../support/redis-server.js';

/** What the examples use without importing it, for shortness; the last one is a body of a function. */
const PRELUDE = `
import { ArgumentsHost, Catch, Controller, ExceptionFilter, Injectable, Module, Param, Post } from '@nestjs/common';
import { Cron } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { fromContext, LockContendedError, Locked, LockService, RedisLockModule } from 'nest-redis-lock';
export interface Order { sku: string }
`;

const root = fileURLToPath(new URL('../..', import.meta.url));
const generated = fileURLToPath(new URL('.generated/readme.ts', import.meta.url));

let redis: RedisServer;

beforeAll(async () => {
  redis = await RedisServer.start();
  process.env.REDIS_PORT = String(redis.port);
  const readme = readFileSync(`${root}README.md`, 'utf8');
  const examples = [...readme.matchAll(/^```ts\n(.*?)^```/gms)].map((match) => match[1]!.replace(/^import .*\n/gm, ''));
  const tests = examples.splice(-2).map((body, index) => `export async function testing${index}() {\n${body}\n}\n`);
  const source = [PRELUDE, ...examples, ...tests].join('\n');
  mkdirSync(new URL('.generated', import.meta.url), { recursive: true });
  writeFileSync(
    generated,
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
    OrderService: new () => { pay(id: string): Promise<string> };
    StockService: new () => { move(order: object, to: string): Promise<void>; reserve(order: object): Promise<void> };
    ReportService: new () => { build(id: string): Promise<number>; byHand(): Promise<void> };
    NightlyJobs: new () => { runs: number; cleanUp(): Promise<void> };
    LockContendedFilter: new () => object;
    testing0(): Promise<void>;
    testing1(): Promise<void>;
  };
}

describe('the examples of the README', () => {
  it('compile with all checks on', () => {
    const { config } = ts.readConfigFile(`${root}tsconfig.json`, (path) => readFileSync(path, 'utf8')) as {
      config: object;
    };
    const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
    const program = ts.createProgram([generated], { ...options, noUnusedParameters: false, noUnusedLocals: false });
    const problems = ts.getPreEmitDiagnostics(program);
    expect(
      ts.formatDiagnostics(problems, { ...ts.sys, getCanonicalFileName: (name) => name, getNewLine: () => '\n' }),
    ).toBe('');
  });

  it('lock on a real Redis in the first minute', async () => {
    const { AppModule, OrderService, OrdersController, StockService, ReportService, NightlyJobs } = await examples();
    const testing = await Test.createTestingModule({
      imports: [AppModule],
      controllers: [OrdersController],
      providers: [OrderService, StockService, ReportService, NightlyJobs],
    }).compile();
    const app = testing.createNestApplication();
    await app.listen(0, '127.0.0.1');

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

    expect(await redis.keys('lock:*')).toEqual(
      ['import:127.0.0.1', 'nightly', 'order:17', 'order:18', 'report', 'report:9', 'stock:tea', 'stock:x%3Ay:z']
        .map((key) => `lock:{${key}}:fence`)
        .sort(),
    );
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
    const { testing0, testing1 } = await examples();
    await testing0();
    await testing1();
    expect(await redis.keys()).toEqual([]);
  });
});

describe('the options table of the README', () => {
  it('names every option there is', async () => {
    const readme = readFileSync(`${root}README.md`, 'utf8');
    const { resolveOptions } = await import('../../lib/resolve-options.js');
    const complaint = (() => {
      try {
        resolveOptions({ memory: true, surely: 'not' } as never);
        return '';
      } catch (error) {
        return (error as Error).message;
      }
    })();
    const options = /expected (.*)\.$/.exec(complaint)![1]!.split(', ');
    expect(options).toContain('ttlMs');
    for (const option of options) expect(readme, `the option ${option}`).toMatch(new RegExp(`^\\| \`${option}\``, 'm'));
  });
});
