import { AsyncLocalStorage } from 'node:async_hooks';
import { Controller, Get, Injectable, Param } from '@nestjs/common';
import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { LeaderOnly, Limited, Locked, LockService } from 'nest-redis-lock';
import { LocksPageModule } from 'nest-redis-lock/page';
import { LockedCron } from 'nest-redis-lock/schedule';
import { expect, it } from 'vitest';
import { makeApp, post, startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { Anyone, Viewer } from '../page/viewer.js';

const tenants = new AsyncLocalStorage<string | null>();
const scope = () => tenants.getStore();
const as = <T>(tenant: string | null, work: () => T): T => tenants.run(tenant, work);

@Injectable()
class Orders {
  leads = 0;
  constructor(private readonly locks: LockService) {}

  @Locked('order:{0}')
  async key(_id: string): Promise<string> {
    return this.locks.current().key;
  }

  @Locked(['order:{0}', 'stock'])
  async keys(_id: string): Promise<string[]> {
    return ['stock', 'order:1'].map((key) => this.locks.current(key).key);
  }

  @Limited('partner:{0}', { limit: 1 })
  async permit(_id: string): Promise<string> {
    return this.locks.current().key;
  }

  @Locked('import', { scope: null })
  async ofAll(): Promise<string> {
    return this.locks.current().key;
  }

  @LockedCron('0 0 1 1 *', 'nightly', { holdMs: 1, name: 'nightly', waitForCompletion: true })
  async nightly(): Promise<void> {
    this.jobs.push(this.locks.current('nightly').key);
  }
  readonly jobs: string[] = [];

  @LeaderOnly('leader')
  async leading(): Promise<true | undefined> {
    return true;
  }
}

@Controller()
class OrdersController {
  constructor(private readonly locks: LockService) {}

  @Get('orders/:id')
  @Locked('order:{params.id}')
  async get(@Param('id') _id: string): Promise<string> {
    return this.locks.current().key;
  }
}

it('a request has the tenant of its middleware, and the page shows the locks of each tenant separately, and releases them', async () => {
  const page = LocksPageModule.register({ path: 'locks', guards: [Anyone], allowRelease: true });
  const { url, locks } = await startApp(
    { imports: [page], controllers: [OrdersController] },
    { memory: true, scope },
    (app) =>
      app.use((req: { headers: Record<string, string> }, _: unknown, next: () => void) =>
        tenants.run(req.headers['x-tenant'] ?? 'staff', next),
      ),
  );
  const keyFor = async (tenant: string) => (await fetch(`${url}/orders/7`, { headers: { 'x-tenant': tenant } })).text();
  expect([await keyFor('acme'), await keyFor('globex')]).toEqual(['@acme/order:7', '@globex/order:7']);
  // The server is not to blame for what a client sends, whether the tenant makes it too long or not.
  const statusOf = async (id: string) =>
    (await fetch(`${url}/orders/${id}`, { headers: { 'x-tenant': 'acme' } })).status;
  expect(await Promise.all([1_012, 1_013, 2_000].map((length) => statusOf('x'.repeat(length))))).toEqual([
    200, 400, 400,
  ]);
  const lock = await as('acme', () => locks.acquire('order:7'));
  const viewer = await Viewer.open(`${url}/locks/events`);
  const row = await viewer.sees('the lock', ({ rows }) => rows?.find(({ key }) => key === lock.key));
  expect(row).toMatchObject({ key: '@acme/order:7', scope: 'acme', text: 'order:7' });
  const answer = await post(
    `${url}/locks/release`,
    { key: row.key, digest: row.digest },
    { headers: { 'sec-fetch-site': 'same-origin' } },
  );
  expect(await answer.json()).toEqual({ released: true });
  expect(lock.isHeld).toBe(false);
});

it('cron jobs and elections belong to the whole application: they run without a tenant, and their keys have none [G943]', async () => {
  const { app, locks } = await makeApp(
    { imports: [ScheduleModule.forRoot()], providers: [Orders] },
    { memory: true, scope },
  );
  const orders = app.get(Orders);
  await as('acme', async () => {
    expect(await orders.key('1')).toBe('@acme/order:1');
    expect(await orders.keys('1')).toEqual(['@acme/stock', '@acme/order:1']);
    expect([await orders.permit('1'), await orders.ofAll()]).toEqual(['@acme/partner:1', 'import']);
  });
  expect(await as(null, () => orders.key('1'))).toBe('order:1');
  await expect(orders.key('1')).rejects.toMatchObject({ code: 'LOCK_KEY' });
  await app.get(SchedulerRegistry).getCronJob('nightly').fireOnTick();
  expect(orders.jobs).toEqual(['nightly']);
  await until(() => orders.leading(), { what: 'this process leads' });
  expect(await locks.isLocked('leader', { scope: null })).toBe(true);
});
