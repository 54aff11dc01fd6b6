import { Test } from '@nestjs/testing';
import { RedisLockModule } from 'nest-redis-lock';
import { expect, it, onTestFinished } from 'vitest';
import { RecordingLogger } from '../support/nest-app.js';
import { untilQueued } from '../support/queue.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';
import { examplesOf, generate } from './compile.js';

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
