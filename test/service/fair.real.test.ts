import { afterAll, beforeAll, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

it('calls with fair: true are served in the order of their arrival also where the monotonic clocks of processes began at different times', async () => {
  const start = () => LockProcess.start({ redis: server.url, fair: true });
  const [first, second, holding] = await Promise.all([start(), start(), openLocks({ redis: server.url, fair: true })]);
  const processes = [first, second];
  for (const each of processes) {
    const holder = await holding.acquire('warm');
    const waiting = each.acquire('warm');
    await untilQueued(server, 'warm', 1);
    await holder.release();
    await waiting;
    await each.release('warm');
  }
  const holder = await holding.acquire('processes');
  const order: number[] = [];
  const calls: Promise<void>[] = [];
  for (const index of [1, 0, 1, 0, 0, 1]) {
    const each = processes[index]!;
    const serve = async () => {
      await each.acquire('processes');
      order.push(index);
      await each.release('processes');
    };
    calls.push(serve());
    await processes[index]!.begun(); // the call is made
    await new Promise((resolve) => setTimeout(resolve, 100)); // longer than half of the best round trip that it had
  }
  await untilQueued(server, 'processes', 2);
  await holder.release();
  await Promise.all(calls);
  expect(order).toEqual([1, 0, 1, 0, 0, 1]);
});
