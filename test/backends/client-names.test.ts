import { beforeEach, describe, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { named } from './names-of-clients.js';

const OURS = 'nest-redis-lock:default';

let server: RedisServer;
beforeEach(async () => {
  server = await RedisServer.start();
  onTestFinished(() => server.stop()); // behind the services, which close before
});

/** A call waits for a lock that another process holds, so it listens for its turn. */
async function wait(locks: LockService): Promise<void> {
  await server.command('SET', 'lock:{key}', 'another', 'PX', 60_000);
  locks.acquire('key').catch(() => {});
}

describe('CLIENT LIST', () => {
  it.each([
    ['a URL', () => server.url],
    ['options', () => ({ host: '127.0.0.1', port: server.port })],
  ])('CLIENT LIST names the connections made from %s after the registration [G70]', async (_source, source) => {
    await wait(await openLocks({ redis: source() }));
    await named(server, OURS, `${OURS}*`);
  });
});
