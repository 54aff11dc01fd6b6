import { BullModule, getQueueToken } from '@nestjs/bullmq';
import type { Provider, Type } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import type { Job, JobState, Queue } from 'bullmq';
import { LockContendedError, LockExceptionFilter, type LockParcel } from 'nest-redis-lock';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { examplesOf, generate } from '../readme/compile.js';
import { Gate } from '../support/gate.js';
import { execute, graphQLModule } from '../support/graphql.js';
import { makeApp, post, startApp, type LockOptions, type TestApp } from '../support/nest-app.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';

const server = await serverOfFile();
beforeEach(() => server.command('FLUSHALL')); // the jobs of other tests

/**
 * The classes of the example that declares this one.
 * @param edit changes the source of the example; by default, nothing
 */
async function recipeWith(
  name: string,
  page = 'docs/recipes.md',
  edit = (source: string) => source,
): Promise<Record<string, Type>> {
  const source = examplesOf(page).find((example) => example.includes(`class ${name} `))!;
  return (await import(/* @vite-ignore */ generate(`recipe-${++recipes}-${name}.ts`, edit(source)))) as Record<
    string,
    Type
  >;
}
let recipes = 0;

/** An application with a queue of BullMQ, with its locks on the same server by default. */
async function startWorker(
  name: string,
  providers: Provider[],
  lock: LockOptions = { redis: server.url, commandTimeoutMs: 20_000 },
): Promise<TestApp & { queue: Queue }> {
  const imports = [
    BullModule.forRoot({ connection: { host: '127.0.0.1', port: server.port } }),
    BullModule.registerQueue({ name }),
  ];
  const made = await makeApp({ imports, providers }, lock);
  return { ...made, queue: made.app.get<Queue>(getQueueToken(name)) };
}

async function untilState(job: Job, state: JobState): Promise<void> {
  await until(async () => (await job.getState()) === state, { what: `job ${job.id} is ${state}` });
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

it('the worker delays a job whose lock is busy, without using up an attempt, and does it when the lock is free', async () => {
  const { Invoices, InvoiceWorker } = await recipeWith('InvoiceWorker');
  const sent: string[] = [];
  const invoices = {
    send: async (customer: string) => {
      if (customer === 'broke') throw new Error('no address');
      if (customer === 'nested') throw new LockContendedError('printer', 0);
      sent.push(customer);
    },
  };
  const { locks, queue } = await startWorker('invoices', [InvoiceWorker!, { provide: Invoices!, useValue: invoices }]);
  const held = await locks.acquire('customer:ada');
  const job = await queue.add('send', { customer: 'ada' });
  await untilState(job, 'delayed');
  expect(await queue.getJob(job.id!)).toMatchObject({ attemptsMade: 0, delay: expect.closeTo(5_000, -3) });
  expect(await server.keys('bull:invoices:*:lock')).toEqual([]); // it was moved with the token of the worker
  expect(sent).toEqual([]);
  await held.release();
  await job.promote(); // its five seconds have passed
  await untilState(job, 'completed');
  expect(sent).toEqual(['ada']);
  for (const customer of ['broke', 'nested']) {
    const failing = await queue.add('send', { customer });
    await untilState(failing, 'failed');
    expect(await queue.getJob(failing.id!)).toMatchObject({ attemptsMade: 1 });
  }
});

it('a job that finds no permit goes behind the waiting jobs, without using up an attempt, so that other customers are served', async () => {
  const { Thumbnails, ThumbnailWorker } = await recipeWith('ThumbnailWorker', 'docs/recipes.md', (source) =>
    source.replace('concurrency: 50', 'concurrency: 6'),
  );
  const gate = new Gate();
  const made: string[] = [];
  let running = 0;
  let most = 0;
  const thumbnails = {
    make: async (image: string) => {
      made.push(image);
      if (image === 'bob.png') return;
      if (image === 'broken.png') throw new Error('no image');
      most = Math.max(most, ++running);
      await gate.opened;
      running--;
    },
  };
  const { queue } = await startWorker('thumbnails', [ThumbnailWorker!, { provide: Thumbnails!, useValue: thumbnails }]);
  onTestFinished(gate.open); // work that continues would keep the application from closing
  const add = (customer: string, image: string) => queue.add('make', { customer, image });
  for (let image = 0; image < 8; image++) await add('ada', `${image}.png`);
  const broken = await add('bob', 'broken.png');
  const other = await add('bob', 'bob.png');
  // Five of Ada's jobs run, and the others take turns on the sixth place of the worker.
  await untilState(broken, 'failed');
  expect(await queue.getJob(broken.id!)).toMatchObject({ attemptsMade: 1 });
  await untilState(other, 'completed');
  expect(made).toHaveLength(7);
  gate.open();
  await until(async () => (await queue.getCompletedCount()) === 9, { what: 'all other jobs are done' });
  const done = await queue.getCompleted();
  expect(new Set(done.map(({ attemptsMade }) => attemptsMade))).toEqual(new Set([1]));
  expect(done.some(({ attemptsStarted }) => attemptsStarted > 1)).toBe(true);
  expect(most).toBe(5);
});

it('no job fails because an application closes, and another application does the jobs that it has not begun', async () => {
  const { Thumbnails, ThumbnailWorker } = await recipeWith('ThumbnailWorker', 'docs/recipes.md', (source) =>
    source.replace('concurrency: 50', 'concurrency: 7').replace('waitMs: 500', 'waitMs: 60_000'),
  );
  const gate = new Gate();
  let begun = 0;
  const thumbnails = {
    make: async () => {
      begun++;
      await gate.opened;
    },
  };
  const start = () => startWorker('thumbnails', [ThumbnailWorker!, { provide: Thumbnails!, useValue: thumbnails }]);
  const closing = await start();
  onTestFinished(gate.open); // work that continues would keep the application from closing
  for (let image = 0; image < 20; image++) {
    await closing.queue.add('make', { customer: 'ada', image: `${image}.png` });
  }
  await until(async () => (await closing.queue.getActiveCount()) === 7, { what: 'the worker has seven jobs' });
  await until(() => begun === 5, { what: 'five of them run' });
  await untilQueued(server, 'thumbnails:ada', 1);
  const closed = closing.app.close();
  await until(async () => (await closing.queue.getDelayedCount()) === 2, { what: 'two were put back' });
  expect(await closing.queue.getJobCounts()).toMatchObject({ active: 5, delayed: 2, waiting: 13, failed: 0 });
  gate.open();
  await closed;
  const { queue } = await start();
  await queue.promoteJobs(); // their five seconds have passed
  await until(async () => (await queue.getCompletedCount()) === 20, { what: 'all jobs are done' });
  expect(begun).toBe(20);
});

it.each([
  ['InvoiceWorker', 'Invoices', 'invoices'],
  ['ThumbnailWorker', 'Thumbnails', 'thumbnails'],
])(
  'a job whose lock is in a Redis that is down is delayed by the %s, without using up an attempt',
  async (host, service, name) => {
    const recipe = await recipeWith(host);
    const down = await RedisServer.start();
    const providers = [recipe[host]!, { provide: recipe[service]!, useValue: {} }];
    const { queue } = await startWorker(name, providers, { redis: down.url, commandTimeoutMs: 200 });
    await down.stop();
    const job = await queue.add('work', { customer: 'ada', image: 'a.png' });
    await untilState(job, 'delayed');
    expect(await queue.getJob(job.id!)).toMatchObject({ attemptsMade: 0, delay: expect.closeTo(5_000, -3) });
  },
);

it('at most the limit of calls to a partner run at a time, and a client that finds no permit gets 409', async () => {
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
  const gate = new Gate();
  const imported: [string, number][] = [];
  const feeds = {
    import: async (feed: string, token: number) => {
      imported.push([feed, token]);
      await gate.opened;
    },
  };
  const provided = { provide: Feeds!, useValue: feeds };
  const web = await startWorker('imports', [Imports!, provided]);
  onTestFinished(gate.open); // work that continues would keep the application from closing
  const imports = web.app.get<{ start(feed: string): Promise<void> }>(Imports!);

  await imports.start('news');
  await expect(imports.start('news')).rejects.toMatchObject({ code: 'LOCK_CONTENDED', holder: { detached: true } });
  const [job] = (await web.queue.getWaiting()) as [Job<{ parcel: LockParcel }>];
  const startImports = () => startWorker('imports', [ImportWorker!, provided]);
  const closing = await startImports();
  await until(() => imported.length === 1, { what: 'the job runs' });
  await expect(imports.start('news')).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
  const closed = closing.app.close();
  await imports.start('weather'); // the closing application leaves it to others
  gate.open();
  await closed;
  expect(await web.queue.getJobCounts()).toMatchObject({ completed: 1, waiting: 1, failed: 0 });
  expect(imported).toEqual([['news', expect.any(Number)]]);
  expect(imported[0]![1]).toBeGreaterThan(job.data.parcel.fencingToken);
  expect(await web.locks.isLocked('feed:news')).toBe(false);
  await startImports();
  await until(() => imported.length === 2, { what: 'another application does what the first has left' });
  const again = await web.queue.add('import', job.data);
  await untilState(again, 'failed');
  expect(imported.map(([feed]) => feed)).toEqual(['news', 'weather']);

  web.queue.add = () => Promise.reject(new Error('the queue is down'));
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

it('of many calls in several processes, one runs and one waits, and each call that returns had a run that started after it', async () => {
  const { IndexBuilder, SearchIndex } = await recipeWith('SearchIndex');
  const gates = [new Gate(), new Gate(), new Gate()];
  const started: number[] = [];
  const builder = {
    build: async () => {
      const run = started.push(returned) - 1;
      await gates[run]!.opened;
    },
  };
  let returned = 0;
  const start = async () => {
    const providers = [SearchIndex!, { provide: IndexBuilder!, useValue: builder }];
    const { app, locks } = await makeApp({ providers }, { redis: server.url, commandTimeoutMs: 20_000 });
    const index = app.get<{ refresh(shop: string): Promise<boolean> }>(SearchIndex!);
    const refresh = async () => {
      const hasRun = await index.refresh('tea');
      if (!hasRun) returned++;
      return hasRun;
    };
    return { refresh, locks };
  };
  const [one, two, three] = await Promise.all([start(), start(), start()]);
  const isFree = async () => !(await one.locks.isLocked('index:tea:next'));
  const first = one.refresh();
  await until(() => started.length === 1, { what: 'the first call runs' });
  const second = two.refresh();
  await untilQueued(server, 'index:tea', 1);
  const others = [one, two, three].flatMap(({ refresh }) => [refresh(), refresh()]);
  expect(await Promise.all(others)).toEqual(others.map(() => false));
  gates[0]!.open();
  expect(await first).toBe(true);
  await until(() => started.length === 2, { what: 'the second call runs' });
  expect(started).toEqual([0, 6]); // the second run started after all calls that have returned
  expect(await isFree()).toBe(true);
  const third = three.refresh(); // the run that has started may have missed the change
  await untilQueued(server, 'index:tea', 1);
  expect(await one.refresh()).toBe(false);
  for (const gate of gates) gate.open();
  expect(await Promise.all([second, third])).toEqual([true, true]);
  expect(started).toEqual([0, 6, 7]);
  expect(await isFree()).toBe(true);
});

it('the description of a locked handler names the answers that its clients get', async () => {
  const { LockErrorBody, PaymentsController } = await recipeWith('PaymentsController');
  const { app, locks, url } = await startApp({
    controllers: [PaymentsController!],
    providers: [{ provide: APP_FILTER, useClass: LockExceptionFilter }],
  });
  const document = SwaggerModule.createDocument(app, new DocumentBuilder().build());
  const { responses } = document.paths['/orders/{id}/payment']!.post!;
  for (const status of ['409', '503', '400']) {
    expect(responses[status]).toMatchObject({
      content: { 'application/json': { schema: { $ref: `#/components/schemas/${LockErrorBody!.name}` } } },
    });
  }
  const schema = document.components!.schemas![LockErrorBody!.name] as { properties: object; required: string[] };
  await locks.withLock('order:7', async () => {
    const answer = await post(`${url}/orders/7/payment`, {});
    const body = (await answer.json()) as object;
    expect(answer.status).toBe(409);
    expect(Object.keys(schema.properties)).toEqual(expect.arrayContaining(Object.keys(body)));
    expect(Object.keys(body)).toEqual(expect.arrayContaining(schema.required));
  });
  expect((await post(`${url}/orders/7/payment`, {})).status).toBe(201);
});
