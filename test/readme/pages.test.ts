import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Test } from '@nestjs/testing';
import { RedisLockModule } from 'nest-redis-lock';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { RecordingLogger } from '../support/nest-app.js';
import { untilQueued } from '../support/queue.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';
import { examplesOf, exampleWith, generate, modulesOf, read, root } from './compile.js';

// The tests that these examples show run here.
const ran: Record<string, number> = {};
for (const [page, modules] of Object.entries({
  'docs/own-store.md': modulesOf('docs/own-store.md').slice(2),
  'docs/testing.md': modulesOf('docs/testing.md'),
})) {
  ran[page] = 0;
  describe.each(modules)(`the tests of ${page} in %s`, async (module) => {
    beforeEach(() => void ran[page]!++);
    await import(/* @vite-ignore */ module);
  });
}

it('the suite that docs/own-store.md shows, on its store, and the tests that docs/testing.md shows have run', () => {
  expect(ran).toEqual({ 'docs/own-store.md': 86, 'docs/testing.md': 10 });
});

it('the application of docs/own-store.md runs, and a call that waits is woken', async () => {
  interface Sending {
    send(id: string): Promise<string>;
  }
  type Class<T = object> = new () => T;
  const { Invoices, InvoicesModule } = await exampleWith<{ Invoices: Class<Sending>; InvoicesModule: Class }>(
    'docs/own-store.md',
    'class Invoices ',
  );
  const app = await Test.createTestingModule({ imports: [InvoicesModule] }).compile();
  const invoices = app.get<Sending>(Invoices);
  expect(await Promise.all(['7', '7'].map((id) => invoices.send(id)))).toEqual(['sent 7', 'sent 7']);
  await app.close();
});

interface Outbox {
  sent: string[];
  report(): Promise<void>;
  handOver(): Promise<void>;
}

it('the example of the page on leader election runs in two applications, of which one leads after the other', async () => {
  const server = await redisServer();
  const generated = generate('leader-page.ts', examplesOf('docs/leader.md')[0]!);
  const { OutboxService } = (await import(/* @vite-ignore */ generated)) as { OutboxService: new () => Outbox };
  const start = async () => {
    const testing = await Test.createTestingModule({
      imports: [RedisLockModule.forRoot({ redis: server.url, commandTimeoutMs: 20_000 })],
      providers: [OutboxService],
    })
      .setLogger(new RecordingLogger())
      .compile();
    onTestFinished(() => testing.close());
    await testing.init();
    return testing.get<Outbox>(OutboxService);
  };
  const first = await start();
  await until(() => first.sent.length > 0, { what: 'the first relays' });
  const second = await start();
  await second.handOver(); // it does not lead
  await second.report();
  await untilQueued(server, 'outbox', 1);
  expect(second.sent).toEqual([]);
  await first.handOver();
  await until(() => second.sent.length > 0, { what: 'the second relays' });
  const termOf = ([message]: string[]) => Number.parseInt(message!, 10);
  expect(termOf(second.sent)).toBeGreaterThan(termOf(first.sent));
});

/** The rows of all tables in a text, each as the texts of its cells. */
const rowsOf = (text: string) =>
  text
    .split('\n')
    .filter((line) => line.startsWith('|') && !/^[|\s:-]+$/.test(line))
    .map((line) => line.split('|').map((cell) => cell.trim()));

it('the page on scale shows what bench/scale.mjs computes', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [`${root}bench/scale.mjs`]);
  const section = read('docs/scale.md').split('<!-- computed -->')[1]!;
  expect(rowsOf(stdout).length).toBeGreaterThan(30);
  expect(rowsOf(section)).toEqual(rowsOf(stdout));
});
