import type { Type } from '@nestjs/common';
import { RedisLockModule } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { examplesOf, generate } from '../readme/compile.js';
import { Gate } from '../support/gate.js';
import { startModules } from '../support/nest-app.js';
import { untilQueued } from '../support/queue.js';
import type { RedisServer } from '../support/redis-server.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

/** Less than on the pages, so that the tests see locks outlive it. */
const TTL_MS = 2_500;

/** The object that the services work on: it records what was done, and lets a test delay the work or make it fail. */
class Resource {
  readonly done: string[] = [];
  before: () => Promise<void> = async () => {};

  async does(what: string): Promise<void> {
    await this.before();
    this.done.push(what);
  }
}

/** Two processes with the service "after" of a page. */
async function twoOf<Service>(page: string, service: string, resource: string, fakeOf: (work: Resource) => object) {
  const server = await redisServer();
  const source = examplesOf(`docs/${page}.md`)[0]!
    .replaceAll(/ttlMs: [\d_]+/g, `ttlMs: ${TTL_MS}`)
    .replaceAll(/waitMs: [\d_]+/g, 'waitMs: 30_000');
  const classes = (await import(/* @vite-ignore */ generate(`${page}-ported.ts`, source))) as Record<string, Type>;
  const resources = [new Resource(), new Resource()] as const;
  const start = (work: Resource) =>
    startModules({
      imports: [RedisLockModule.forRoot({ redis: server.url, ttlMs: TTL_MS })],
      providers: [classes[service]!, { provide: classes[resource]!, useValue: fakeOf(work) }],
    });
  const apps = [await start(resources[0]), await start(resources[1])] as const;
  const [first, second] = apps.map((app) => app.get<Service>(classes[service]!)) as [Service, Service];
  /** Delays the work of the first. */
  const gate = new Gate();
  resources[0].before = () => gate.opened;
  return { server, first, second, resources, gate };
}

const leftMs = async (server: RedisServer, key: string) => Number(await server.command('PTTL', `lock:{${key}}`));

/** Waits until the lease of the lock has been extended more than once: it has then outlived its first ttl. */
async function untilExtended(server: RedisServer, key: string): Promise<void> {
  let extensions = 0;
  let last = await leftMs(server, key);
  await until(
    async () => {
      const left = await leftMs(server, key);
      if (left > last) extensions++;
      last = left;
      return extensions >= 3;
    },
    { what: `the lease of "${key}" is extended three times` },
  );
}

const isFree = async (server: RedisServer, key: string) => (await leftMs(server, key)) === -2;

describe('the service ported from redlock', () => {
  interface Transfers {
    transfer(from: string, to: string, amount: number): Promise<void>;
  }
  const start = () =>
    twoOf<Transfers>('migrate-redlock', 'TransferService', 'Ledger', (resource) => ({
      add: (account: string, amount: number) => resource.does(`${account} ${amount}`),
    }));

  it('makes transfers in opposite directions one after the other', async () => {
    const two = await start();
    const there = two.first.transfer('b', 'c', 5);
    await until(async () => !(await isFree(two.server, 'account:c')), { what: 'the first transfer has both locks' });
    const back = two.second.transfer('c', 'b', 3);
    await untilQueued(two.server, 'account:b', 1);
    expect(two.resources[1].done).toEqual([]);
    two.gate.open();
    await Promise.all([there, back]);
    expect(two.resources.map(({ done }) => done)).toEqual([
      ['b -5', 'c 5'],
      ['c -3', 'b 3'],
    ]);
  });
});

describe('the service ported from murlock', () => {
  interface Orders {
    pay(order: { id: string }): Promise<string>;
    refund(id: string): Promise<string>;
  }
  const start = () =>
    twoOf<Orders>('migrate-murlock', 'OrderService', 'Payments', (resource) => ({
      charge: (id: string) => resource.does(`charge ${id}`).then(() => 'paid'),
      refund: (id: string) => resource.does(`refund ${id}`).then(() => 'refunded'),
    }));

  it('pays an order for longer than the ttl, while the refund in the other process waits for it', async () => {
    const two = await start();
    const paid = two.first.pay({ id: '7' });
    await untilExtended(two.server, 'order:7');
    const refunded = two.second.refund('7');
    await untilQueued(two.server, 'order:7', 1);
    expect(two.resources[1].done).toEqual([]);
    expect(await two.second.pay({ id: '8' })).toBe('paid'); // another order does not wait
    two.gate.open();
    expect(await Promise.all([paid, refunded])).toEqual(['paid', 'refunded']);
  });
});

describe('the service ported from redis-semaphore', () => {
  interface Imports {
    run(feed: string): Promise<boolean>;
  }
  const start = () =>
    twoOf<Imports>('migrate-redis-semaphore', 'ImportService', 'Feeds', (resource) => ({
      pagesOf: async (feed: string) => [`${feed} 1`, `${feed} 2`],
      store: (page: string) => resource.does(page),
    }));

  it('imports a feed for longer than the ttl, while the other process finds the lock busy', async () => {
    const two = await start();
    const imported = two.first.run('news');
    await untilExtended(two.server, 'import:news');
    expect(await two.second.run('news')).toBe(false);
    two.gate.open();
    expect(await imported).toBe(true);
    expect(two.resources.map(({ done }) => done)).toEqual([['news 1', 'news 2'], []]);
  });
});

describe('the service ported from @nestjs-redis/lock', () => {
  interface Reports {
    summary(): Promise<string>;
    build(id: string): Promise<string>;
    refresh(id: string): Promise<boolean>;
  }
  const start = () =>
    twoOf<Reports>('migrate-nestjs-redis-lock', 'ReportService', 'Printer', (resource) => ({
      print: (name: string) => resource.does(name).then(() => `${name} is printed`),
    }));

  it('builds a report for longer than the ttl, while the other process finds the lock busy', async () => {
    const two = await start();
    const [built, summary] = [two.first.build('9'), two.first.summary()];
    await untilExtended(two.server, 'report:9');
    expect(await two.second.refresh('9')).toBe(false);
    expect(await two.second.refresh('10')).toBe(true);
    expect(await isFree(two.server, 'reports:summary')).toBe(false); // it was also extended
    const second = two.second.summary();
    await untilQueued(two.server, 'reports:summary', 1);
    expect(two.resources[1].done).toEqual(['10']);
    two.gate.open();
    expect(await Promise.all([built, summary])).toEqual(['9 is printed', 'summary is printed']);
    await second;
  });
});
