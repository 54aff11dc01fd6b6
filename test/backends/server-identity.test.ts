import { expect, it } from 'vitest';
import { identify } from '../../lib/stores/redis/client/server-identity.js';
import { portOf } from '../support/port-of.js';
import { clientOf, redisServer } from '../support/stage.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

async function saysUptimeS(server: RedisServer): Promise<number> {
  return Number(/uptime_in_seconds:(\d+)/.exec(String(await server.command('INFO', 'server')))![1]);
}

it('no server is taken to be up for longer than it is, though Redis reports one second after a moment [G97]', async () => {
  const early = async () => {
    await until(() => Date.now() % 1_000 > 600, { what: 'a second is nearly over' });
    const launchedAt = performance.now();
    const server = await redisServer();
    await until(async () => (await saysUptimeS(server)) === 1, { what: 'Redis says one second' });
    return performance.now() < launchedAt + 1_000 ? { server, launchedAt } : undefined;
  };
  const { server, launchedAt } = await until(early, { what: 'Redis says so within a second', timeoutMs: 60_000 });
  const { uptimeS } = await identify(portOf(clientOf(server)));
  expect(launchedAt + uptimeS * 1_000).toBeLessThanOrEqual(performance.now());
}, 70_000);
