import type { Type } from '@nestjs/common';
import { LockContendedError, type LockParcel } from 'nest-redis-lock';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { examplesOf, generate } from '../readme/compile.js';
import { Gate } from '../support/gate.js';
import { execute, graphQLModule } from '../support/graphql.js';
import { makeApp, post, startApp } from '../support/nest-app.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { Job, Queue, type WorkerHost } from './bullmq.stand-in.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

/** The classes of the example that declares this one. */
async function recipeWith(name: string, page = 'docs/recipes.md'): Promise<Record<string, Type>> {
  const source = examplesOf(page).find((example) => example.includes(`class ${name} `))!;
  const runnable = source.replaceAll(/'(?:@nestjs\/)?bullmq'/g, "'../../recipes/bullmq.stand-in.js'");
  return (await import(/* @vite-ignore */ generate(`recipe-${name}.ts`, runnable))) as Record<string, Type>;
}

it('the webhook handles an event once that two processes receive at the same time, and answers both alike', async () => {
  const { Inbox, PaymentsWebhook } = await recipeWith('PaymentsWebhook');
  const gate = new Gate();
  const handled: string[] = [];
  const inbox = {
    has: async (id: string) => handled.includes(id),
    handle: async (id: string) => {
      await gate.opened;
      handled.push(id);
    },
  };
  const start = () =>
    startApp(
      { controllers: [PaymentsWebhook!], providers: [{ provide: Inbox!, useValue: inbox }] },
      { redis: server.url, commandTimeoutMs: 20_000 },
    );
  const [one, other] = await Promise.all([start(), start()]);
  const event = { id: 'evt_1', order: '7' };
  const first = post(`${one.url}/webhooks/payments`, event);
  await until(() => one.acquired.length === 1, { what: 'the first process has the lock' });
  const again = post(`${other.url}/webhooks/payments`, event);
  await untilQueued(server, 'webhook:evt_1', 1);
  gate.open();
  for (const answer of await Promise.all([first, again])) {
    expect([answer.status, await answer.json()]).toEqual([200, { received: 'evt_1' }]);
  }
  expect(handled).toEqual(['evt_1']);
  expect((await post(`${one.url}/webhooks/payments`, { order: '8' })).status).toBe(400);
  expect(handled).toEqual(['evt_1']);
});

it('the worker delays a job whose lock is busy, at no attempt, and does it when the lock is free', async () => {
  const { Invoices, InvoiceWorker } = await recipeWith('InvoiceWorker');
  const sent: string[] = [];
  const invoices = {
    send: async (customer: string) => {
      if (customer === 'broke') throw new Error('no address');
      if (customer === 'nested') throw new LockContendedError('printer', 0);
      sent.push(customer);
    },
  };
  const { app, locks } = await makeApp(
    { providers: [InvoiceWorker!, { provide: Invoices!, useValue: invoices }] },
    { redis: server.url, commandTimeoutMs: 20_000 },
  );
  const worker = app.get<WorkerHost>(InvoiceWorker!);
  const job = new Job({ customer: 'ada' });
  const held = await locks.acquire('customer:ada');
  await job.runOn(worker);
  expect(job).toMatchObject({ state: 'delayed', attemptsMade: 0 });
  expect(job.delayMs).toBeGreaterThan(4_000);
  expect(sent).toEqual([]);
  await held.release();
  await job.runOn(worker);
  expect(job).toMatchObject({ state: 'completed', attemptsMade: 0 });
  expect(sent).toEqual(['ada']);
  for (const customer of ['broke', 'nested']) {
    const failing = new Job({ customer });
    await failing.runOn(worker);
    expect(failing).toMatchObject({ state: 'failed', attemptsMade: 1 });
  }
});

it('so many jobs of one customer run at a time, further ones go back to those that wait, and other customers are served', async () => {
  const { Thumbnails, ThumbnailWorker } = await recipeWith('ThumbnailWorker');
  const gate = new Gate();
  const made: string[] = [];
  const thumbnails = {
    make: async (image: string) => {
      made.push(image);
      if (image === 'broken.png') throw new Error('no image');
      await gate.opened;
    },
  };
  const { app } = await makeApp({ providers: [ThumbnailWorker!, { provide: Thumbnails!, useValue: thumbnails }] });
  const worker = app.get<WorkerHost>(ThumbnailWorker!);
  const jobOf = (customer: string, image: string) => new Job({ customer, image });
  const jobs = ['1', '2', '3', '4', '5'].map((image) => jobOf('ada', image));
  const running = jobs.map((job) => job.runOn(worker));
  await until(() => made.length === 5, { what: 'five jobs run' });
  const sixth = jobOf('ada', '6');
  await sixth.runOn(worker);
  expect(sixth).toMatchObject({ state: 'delayed', attemptsMade: 0 });
  expect(sixth.delayMs).toBeLessThanOrEqual(0);
  const broken = jobOf('bob', 'broken.png');
  await broken.runOn(worker);
  expect(broken).toMatchObject({ state: 'failed', attemptsMade: 1 });
  gate.open();
  await Promise.all(running);
  await sixth.runOn(worker);
  expect([...jobs, sixth].map(({ state }) => state)).toEqual(Array.from({ length: 6 }, () => 'completed'));
});

it('so many calls to a partner run at a time, and a client that finds no permit gets 409', async () => {
  const { CreditBureau, ScoresController } = await recipeWith('ScoresController');
  const gate = new Gate();
  let running = 0;
  const bureau = {
    ask: async (_customer: string, signal: AbortSignal) => {
      running++;
      await gate.opened;
      return signal.aborted ? 0 : 650;
    },
  };
  const { url } = await startApp({
    controllers: [ScoresController!],
    providers: [{ provide: CreditBureau!, useValue: bureau }],
  });
  const ask = () => fetch(`${url}/scores/ada`);
  const first = Array.from({ length: 5 }, ask);
  await until(() => running === 5, { what: 'five calls run' });
  const busy = await ask();
  expect(busy.status).toBe(409);
  expect(Number(busy.headers.get('retry-after'))).toBeGreaterThan(0);
  gate.open();
  for (const answer of await Promise.all(first)) expect(await answer.json()).toEqual({ score: 650 });
  expect(running).toBe(5);
});

it.each(['docs/permits.md', 'docs/migrate-redis-semaphore.md'])(
  'an upload to a partner takes three of its five permits, in the example of %s',
  async (page) => {
    const service = page === 'docs/permits.md' ? 'Partners' : 'PricesService';
    const { PartnerApi, [service]: Partners } = await recipeWith(service, page);
    const gate = new Gate();
    let uploads = 0;
    const api = {
      price: async () => 7,
      upload: async () => {
        uploads++;
        await gate.opened;
      },
    };
    const { app, locks } = await makeApp({ providers: [Partners!, { provide: PartnerApi!, useValue: api }] });
    interface Example {
      price(partner: string, sku: string): Promise<number>;
      upload(partner: string, file: string): Promise<void>;
    }
    const partners = app.get<Example>(Partners!);
    const running = [partners.upload('acme', 'a.csv'), partners.upload('acme', 'b.csv')];
    await until(() => uploads === 1, { what: 'one upload runs' });
    const free = (permits: number) => locks.tryAcquirePermits('partner:acme', { limit: 5, permits });
    expect(await partners.price('other', 'tea')).toBe(7);
    expect(await free(1)).toBeNull(); // two are free, and the second upload waits for three
    gate.open();
    await Promise.all(running);
    expect(await partners.price('acme', 'tea')).toBe(7);
    await (await free(5))!.release();
  },
);

it('the job goes on with the lock of the request that put it into the queue, once, and a queue that is down leaves no lock', async () => {
  const { Feeds, Imports, ImportWorker } = await recipeWith('ImportWorker', 'docs/detach.md');
  const queue = new Queue();
  const imported: [string, number][] = [];
  const feeds = { import: async (feed: string, token: number) => void imported.push([feed, token]) };
  const providers = [Imports!, ImportWorker!, { provide: Feeds!, useValue: feeds }, Queue.provider('imports', queue)];
  const settings = { redis: server.url, commandTimeoutMs: 20_000 };
  const [web, worker] = [await makeApp({ providers }, settings), await makeApp({ providers }, settings)];
  const imports = web.app.get<{ start(feed: string): Promise<void> }>(Imports!);

  await imports.start('news');
  await expect(imports.start('news')).rejects.toMatchObject({ code: 'LOCK_CONTENDED', holder: { detached: true } });
  const job = () => new Job(JSON.parse(queue.added[0]!) as { parcel: LockParcel });
  const [first, again] = [job(), job()];
  await first.runOn(worker.app.get(ImportWorker!));
  expect(first.state).toBe('completed');
  expect(imported).toEqual([['news', expect.any(Number)]]);
  expect(imported[0]![1]).toBeGreaterThan(first.data.parcel.fencingToken);
  expect(await web.locks.isLocked('feed:news')).toBe(false);
  await again.runOn(worker.app.get(ImportWorker!));
  expect(again.state).toBe('failed');
  expect(imported).toHaveLength(1);

  queue.add = () => Promise.reject(new Error('the queue is down'));
  await expect(imports.start('sports')).rejects.toThrow('the queue is down');
  expect(await web.locks.isLocked('feed:sports')).toBe(false);
});

it('the mutation sells no seat twice, and a client sees the code of a busy lock and no key', async () => {
  const { Seats, SeatsResolver } = await recipeWith('SeatsResolver');
  const { app, locks } = await makeApp(
    { imports: [graphQLModule()], providers: [Seats!, SeatsResolver!] },
    { redis: server.url, commandTimeoutMs: 20_000 },
  );
  const run = (source: string) => execute(app, source, { req: { headers: {} } });
  const book = () => run('mutation { book(show: "hall") }');
  const booked = await Promise.all([1, 2, 3].map(book));
  expect(booked.map(({ data, errors }) => data?.book ?? errors![0]!.message).sort()).toEqual([0, 1, 'Sold out.']);
  expect((await run('{ seatsLeft(show: "hall") }')).data).toEqual({ seatsLeft: 0 });

  await using _held = await locks.acquire('seats:hall');
  const [busy] = (await book()).errors!;
  expect(busy!.extensions).toMatchObject({ code: 'LOCK_CONTENDED', statusCode: 409 });
  expect(JSON.stringify(busy)).not.toContain('seats:hall');
});
