import type { Type } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { LockService, RedisLockModule } from 'nest-redis-lock';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { examplesOf, generate } from '../readme/compile.js';
import { Gate } from '../support/gate.js';
import { RecordingLogger } from '../support/nest-app.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

/** Less than what the pages show, so that the tests see locks outlive it. */
const TTL_MS = 2_500;

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

interface Process<Service> {
  service: Service;
  locks: LockService;
  close(): Promise<void>;
}

/** What the services work on: keeps what was done, and lets a test hold the work up or fail it. */
class Resource {
  readonly done: string[] = [];
  before: () => Promise<void> = async () => {};

  async does(what: string): Promise<void> {
    await this.before();
    this.done.push(what);
  }
}

/** Starts the service "after" of a page in an application of its own. */
async function start<Service>(
  page: string,
  service: string,
  resource: string,
  fake: object,
): Promise<Process<Service>> {
  const source = examplesOf(`docs/${page}.md`)[0]!
    .replaceAll(/ttlMs: [\d_]+/g, `ttlMs: ${TTL_MS}`)
    .replaceAll(/waitMs: [\d_]+/g, 'waitMs: 30_000');
  const classes = (await import(/* @vite-ignore */ generate(`${page}-ported.ts`, source))) as Record<string, Type>;
  const testing = await Test.createTestingModule({
    imports: [RedisLockModule.forRoot({ redis: server.url, ttlMs: TTL_MS })],
    providers: [classes[service]!, { provide: classes[resource]!, useValue: fake }],
  })
    .setLogger(new RecordingLogger())
    .compile();
  await testing.init();
  return {
    service: testing.get<Service>(classes[service]!),
    locks: testing.get(LockService),
    close: () => testing.close(),
  };
}

/** Two processes with the service of a page, which stay for all tests of a `describe`. */
function twoOf<Service>(
  page: string,
  service: string,
  resource: string,
  fakeOf: (resource: Resource) => object,
): { first: Service; second: Service; /** Of the first. */ locks: LockService; resources: [Resource, Resource] } {
  let processes: Process<Service>[];
  const resources: [Resource, Resource] = [new Resource(), new Resource()];
  beforeAll(async () => {
    processes = await Promise.all(resources.map((each) => start<Service>(page, service, resource, fakeOf(each))));
  });
  beforeEach(() => {
    for (const each of resources) {
      each.done.length = 0;
      each.before = async () => {};
    }
  });
  afterAll(() => Promise.all(processes.map((each) => each.close())));
  return {
    get first() {
      return processes[0]!.service;
    },
    get second() {
      return processes[1]!.service;
    },
    get locks() {
      return processes[0]!.locks;
    },
    resources,
  };
}

const leftMs = async (key: string) => Number(await server.command('PTTL', `lock:{${key}}`));

/** Waits until the lease of the lock has been extended more than once: it has then outlived its first ttl. */
async function untilExtended(key: string): Promise<void> {
  let extensions = 0;
  let last = await leftMs(key);
  await until(
    async () => {
      const left = await leftMs(key);
      if (left > last) extensions++;
      last = left;
      return extensions >= 3;
    },
    { what: `the lease of "${key}" is extended three times` },
  );
}

const isFree = async (key: string) => (await leftMs(key)) === -2;

describe('the service ported from redlock', () => {
  interface Transfers {
    transfer(from: string, to: string, amount: number): Promise<void>;
    audit(account: string): Promise<boolean>;
  }
  const two = twoOf<Transfers>('migrate-redlock', 'TransferService', 'Ledger', (resource) => ({
    add: (account: string, amount: number) => resource.does(`${account} ${amount}`),
    check: (account: string) => resource.does(account),
  }));

  it('audits an account in one process for longer than the ttl, while the other finds the lock busy', async () => {
    const gate = new Gate();
    two.resources[0].before = () => gate.opened;
    const audit = two.first.audit('a');
    await untilExtended('account:a');
    expect(await two.second.audit('a')).toBe(false);
    gate.open();
    expect(await audit).toBe(true);
    expect(await two.second.audit('a')).toBe(true);
  });

  it('makes transfers in opposite directions one after the other', async () => {
    const gate = new Gate();
    two.resources[0].before = () => gate.opened;
    const there = two.first.transfer('b', 'c', 5);
    await until(async () => !(await isFree('account:c')), { what: 'the first transfer has both locks' });
    const back = two.second.transfer('c', 'b', 3);
    await untilQueued(server, 'account:b', 1);
    expect(two.resources[1].done).toEqual([]);
    gate.open();
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
  const two = twoOf<Orders>('migrate-murlock', 'OrderService', 'Payments', (resource) => ({
    charge: (id: string) => resource.does(`charge ${id}`).then(() => 'paid'),
    refund: (id: string) => resource.does(`refund ${id}`).then(() => 'refunded'),
  }));

  it('pays an order for longer than the ttl, while the refund in the other process waits for it', async () => {
    const gate = new Gate();
    two.resources[0].before = () => gate.opened;
    const paid = two.first.pay({ id: '7' });
    await untilExtended('order:7');
    const refunded = two.second.refund('7');
    await untilQueued(server, 'order:7', 1);
    expect(two.resources[1].done).toEqual([]);
    expect(await two.second.pay({ id: '8' })).toBe('paid'); // another order does not wait
    gate.open();
    expect(await Promise.all([paid, refunded])).toEqual(['paid', 'refunded']);
  });
});

describe('the service ported from redis-semaphore', () => {
  interface Imports {
    run(feed: string): Promise<boolean>;
  }
  const two = twoOf<Imports>('migrate-redis-semaphore', 'ImportService', 'Feeds', (resource) => ({
    pagesOf: async (feed: string) => [`${feed} 1`, `${feed} 2`],
    store: (page: string) => resource.does(page),
  }));

  it('imports a feed for longer than the ttl, while the other process finds the lock busy', async () => {
    const gate = new Gate();
    two.resources[0].before = () => gate.opened;
    const imported = two.first.run('news');
    await untilExtended('import:news');
    expect(await two.second.run('news')).toBe(false);
    gate.open();
    expect(await imported).toBe(true);
    expect(two.resources.map(({ done }) => done)).toEqual([['news 1', 'news 2'], []]);
  });

  it('stores no more pages when its lock is lost', async () => {
    let isLost = false;
    two.locks.events$.subscribe(({ type }) => (isLost ||= type === 'lost'));
    two.resources[0].before = async () => {
      await two.locks.forceRelease('import:lost');
      await until(() => isLost, { what: 'the loss is noticed' });
    };
    await expect(two.first.run('lost')).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect(two.resources[0].done).toEqual(['lost 1']);
  });
});

describe('the service ported from @nestjs-redis/lock', () => {
  interface Reports {
    summary(): Promise<string>;
    build(id: string): Promise<string>;
    refresh(id: string): Promise<boolean>;
  }
  const two = twoOf<Reports>('migrate-nestjs-redis-lock', 'ReportService', 'Printer', (resource) => ({
    print: (name: string) => resource.does(name).then(() => `${name} is printed`),
  }));

  it('builds a report for longer than the ttl, while the other process finds the lock busy', async () => {
    const gate = new Gate();
    two.resources[0].before = () => gate.opened;
    const [built, summary] = [two.first.build('9'), two.first.summary()];
    await untilExtended('report:9');
    expect(await two.second.refresh('9')).toBe(false);
    expect(await two.second.refresh('10')).toBe(true);
    expect(await isFree('reports:summary')).toBe(false); // extended as well
    const second = two.second.summary();
    await untilQueued(server, 'reports:summary', 1);
    expect(two.resources[1].done).toEqual(['10']);
    gate.open();
    expect(await Promise.all([built, summary])).toEqual(['9 is printed', 'summary is printed']);
    await second;
  });
});
