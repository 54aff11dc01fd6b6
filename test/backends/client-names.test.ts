import { Redis } from 'ioredis';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
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

  it('shows a registration whose name a client must not have by one that it may', async () => {
    await openLocks({ redis: server.url }, 'the märket\n2');
    await named(server, 'nest-redis-lock:the_m_rket_2');
  });

  it.each([
    ['a URL', () => `${server.url}?connectionName=theirs`],
    ['options', () => ({ host: '127.0.0.1', port: server.port, connectionName: 'theirs' })],
    ['a function', () => () => new Redis(server.port, '127.0.0.1', { connectionName: 'theirs' })],
  ])('shows the name that the user gave in %s', async (_source, source) => {
    await wait(await openLocks({ redis: source() }));
    await named(server, 'theirs', 'theirs*');
  });

  it('shows a client of the application under its own name, and what is made after its example under ours', async () => {
    const client = new Redis(server.port, '127.0.0.1', { connectionName: 'theirs' });
    onTestFinished(() => client.disconnect());
    const locks = await openLocks({ redis: client });
    await wait(locks);
    await named(server, `${OURS}*`, 'theirs');
    expect(client.options.connectionName).toBe('theirs');
  });

  it('shows the connection on which the doctor tries whether it may subscribe', async () => {
    const locks = await openLocks({ redis: server.url });
    await server.resetCalls();
    await locks.diagnose();
    const { 'client|setname': setname = 0, hello = 0 } = await server.calls(); // either can give the name
    expect(setname + hello).toBeGreaterThan(0);
  });
});
