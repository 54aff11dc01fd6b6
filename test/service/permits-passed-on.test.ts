import { afterAll, beforeAll, expect, it } from 'vitest';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { loopTurn } from '../../lib/core/time/event-loop.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

it.each<[string, () => RedisLockModuleOptions]>([
  ['memory', () => ({ memory: true })],
  ['one Redis', () => ({ redis: server.url })],
])('a call that is passed permits within the process waits in no queue any more (%s)', async (_store, options) => {
  const locks = await openLocks(options());
  const failures: unknown[] = [];
  const note = (reason: unknown) => void failures.push(reason);
  process.on('unhandledRejection', note);
  try {
    const many = await locks.acquirePermits('passed', { limit: 5, permits: 4 });
    const one = await locks.acquirePermits('passed', { limit: 5 });
    const waiting = locks.acquirePermits('passed', { limit: 5 });
    const places = async () => (await locks.inspect('passed'))?.waitingProcesses?.length ?? 0;
    await until(async () => (await locks.inspect('passed'))?.waiters === 1, { what: 'it waits' });
    await until(async () => (await places()) === 1, { what: 'it has its place' });
    const released = [many.release(), one.release()];
    const next = await waiting;
    await Promise.all(released);
    await until(async () => (await places()) === 0, { what: 'its place is left' });
    expect(await locks.inspect('passed')).toMatchObject({ permits: { held: 1, limit: 5 }, waiters: 0 });
    await next.release();
    expect(locks.size).toBe(0);
    await loopTurn(); // until unhandled rejections are reported
    expect(failures).toEqual([]);
  } finally {
    process.off('unhandledRejection', note);
  }
});
