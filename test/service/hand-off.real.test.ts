import { afterAll, beforeAll, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { queued, untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { until } from '../support/until.js';
import { channels } from './hand-off.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

it('a released lock reaches a waiter in another process by one release and one confirmation [G99]', async () => {
  const start = () => LockProcess.start({ redis: server.url });
  const [holder, waiter] = await Promise.all([start(), start()]);
  const before = await channels(server);
  await holder.acquire('before');
  const earlier = waiter.acquire('before');
  await until(async () => (await channels(server)) > before, { what: 'it listens' });
  await holder.release('before');
  await earlier;
  const { fencingToken } = await holder.acquire('processes');
  const waiting = waiter.acquire('processes');
  await untilQueued(server, 'processes', 1);
  await server.resetCalls();
  await holder.release('processes');
  const lock = await waiting;
  await until(async () => (await scriptCalls(server)) === 2, { what: 'it extends what was handed over' });
  expect(lock.owner).toContain(`/${waiter.pid}/`);
  expect(lock.fencingToken).toBeGreaterThan(fencingToken);
  expect(await queued(server, 'processes')).toBe(0);
});
