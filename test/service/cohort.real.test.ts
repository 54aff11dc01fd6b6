import { afterAll, beforeAll, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

it('processes that pass a lock on among their calls never hold it two at a time, and each token is larger than those before', async () => {
  const start = () => LockProcess.start({ redis: server.url, cohortPasses: 10 });
  const processes = await Promise.all([start(), start(), start()]);
  const duty = { waiters: 20, turns: 10, request: { waitMs: 60_000 } };
  const turns = (await Promise.all(processes.map((each) => each.turns('alternate', duty)))).flat();
  expect(turns).toHaveLength(600);
  const byTime = turns.sort((a, b) => Number(BigInt(a.from) - BigInt(b.from)));
  const overlaps = byTime.filter(({ from }, index) => index > 0 && BigInt(from) < BigInt(byTime[index - 1]!.to));
  expect(overlaps).toEqual([]);
  const tokens = byTime.map(({ fencingToken }) => fencingToken);
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
});

it('calls to which a lock was passed on leave no timer of their wait behind', async () => {
  const locks = await openLocks({ redis: server.url, cohortMs: 60_000 });
  const timers = () => process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
  const before = timers();
  const turn = () => locks.withLock('timers', { waitMs: 60_000 }, async () => timers());
  const during = await Promise.all(Array.from({ length: 20 }, turn));
  expect(Math.max(...during)).toBeGreaterThan(before);
  await until(() => timers() <= before, { what: 'their timers are gone' });
});
