import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { proxyTo, redisServer } from '../support/stage.js';
import type { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { attempt, backendOf, untilGranted, warmUp } from '../support/claims.js';

/** A server, and the address that clients know, which can lead to another server. */
interface Address {
  server: RedisServer;
  door: TcpProxy;
}

async function address(): Promise<Address> {
  const server = await redisServer();
  return { server, door: await proxyTo(server) };
}

/** The server becomes a replica, and keeps its connections. */
async function becomesReplica({ server }: Address, of: RedisServer): Promise<void> {
  await server.command('REPLICAOF', '127.0.0.1', of.port);
  expect(String(await server.command('INFO', 'replication'))).toContain('role:slave');
}

/** A lock is taken and released, so each connection exists. */
async function inUse(options: RedisLockModuleOptions): Promise<LockBackend> {
  const backend = await backendOf({ commandTimeoutMs: 20_000, ...options });
  await warmUp(backend);
  return backend;
}

const readOnly = expect.objectContaining({ problem: expect.stringContaining('READONLY') });

describe('A primary that became a replica and kept its connections', () => {
  it.each([
    ['a URL', ({ door }: Address) => door.url],
    ['options', ({ door }: Address) => ({ host: '127.0.0.1', port: door.port })],
    [
      'a function',
      ({ door }: Address) =>
        () =>
          new Redis(door.url),
    ],
  ])('a client made from %s leaves a demoted primary for the new one at its address [G64]', async (_source, source) => {
    const [old, next] = [await address(), await redisServer()];
    const backend = await inUse({ redis: source(old) });
    await becomesReplica(old, next);
    old.door.retarget(next.port);
    await untilGranted(backend);
  });

  it('a client asks a demoted primary again at most once a second while its address leads to no other server [G65]', async () => {
    const [old, next] = [await address(), await redisServer()];
    const backend = await inUse({ redis: old.door.url });
    await becomesReplica(old, next);
    const [startedAt, before] = [performance.now(), old.door.made];
    await until(
      async () => {
        expect(await attempt(backend)).toEqual({ status: 'unavailable', causes: [readOnly] });
        return old.door.made >= before + 3;
      },
      { what: 'the connection was made again three times' },
    );
    const seconds = (performance.now() - startedAt) / 1_000;
    expect(old.door.made - before).toBeLessThanOrEqual(1 + seconds);
  });
});
