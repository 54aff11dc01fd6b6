import { expect, it } from 'vitest';
import { RELEASE } from '../../lib/stores/redis/scripts/lua.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { shardOf } from '../support/stored.js';
import { blockEventLoop, clientOf, freeOn, redisServers } from '../support/stage.js';

it('leaves no vote behind on a node that had forgotten the acquire script, when release and acquire are answered together', async () => {
  const nodes = await redisServers(3);
  const late = nodes[2]!;
  const locks = await openLocks({
    redlock: nodes.map((node) => clientOf(node)),
    commandTimeoutMs: 10_000,
    ttlMs: 60_000,
  });
  await locks.withLock('scripts are loaded', () => {});
  await freeOn(nodes, 'scripts are loaded');
  await Promise.all(nodes.map((node) => node.command('SET', shardOf('key'), 2e15)));
  await late.command('SCRIPT', 'FLUSH');
  await late.command('SCRIPT', 'LOAD', RELEASE.source);

  late.pause();
  const lock = await locks.acquire('key');
  late.resume();
  blockEventLoop(50); // its NOSCRIPT has arrived, and is not read yet
  const releasing = lock.release(); // sent before the acquire is sent again
  await new Promise(process.nextTick);
  late.pause();
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
  late.resume(); // runs both, and answers both at once
  expect(await releasing).toBe(true);
  await until(async () => Number(await late.command('GET', shardOf('key'))) > 2e15, {
    what: 'it has granted late',
  });
  await freeOn(nodes, 'key');
});
