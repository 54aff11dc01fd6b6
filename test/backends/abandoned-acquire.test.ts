import { Redis, type RedisOptions } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { acquireOn, claimOn, connected, freshKey, granted, releaseOn } from '../support/claims.js';
import { counterOn, ownerOn } from '../support/stored.js';

/** Options of a client of the application; none: the client that this library makes. */
const CLIENTS: [string, RedisOptions | undefined][] = [
  ['a client of its own', undefined],
  ['a client with default options', {}],
  ['a client with a command timeout shorter than the limit', { commandTimeout: 300 }],
  ['a client with a command timeout longer than the limit', { commandTimeout: 800 }],
  ['a client that sends nothing again', { autoResendUnfulfilledCommands: false }],
  ['a client without an offline queue', { enableOfflineQueue: false }],
];

describe.each(CLIENTS)('An acquire that was given up, by %s,', (_name, options) => {
  let server: RedisServer;
  let proxy: TcpProxy;
  let client: Redis | undefined;
  let backend: LockBackend;

  beforeAll(async () => {
    server = await RedisServer.start();
    proxy = await TcpProxy.start(server.port);
  });
  afterEach(async () => {
    server.resume();
    proxy.release();
    await backend.close();
    client?.disconnect();
  });
  afterAll(async () => {
    await proxy.stop();
    await server.stop();
  });

  const open = async (port: number): Promise<void> => {
    client = options && new Redis(port, '127.0.0.1', options).on('error', () => {});
    backend = await connected({ redis: client ?? `redis://127.0.0.1:${port}`, commandTimeoutMs: 500 });
    const warmUp = claimOn(freshKey());
    await granted(backend, warmUp);
    await releaseOn(backend, warmUp);
  };
  const count = (name: string) => server.command('EXISTS', name) as Promise<number>;
  /** The next one gets the lock, long before the ttl of the one that was given up is over. */
  const isFree = async (key: string) => {
    const next = claimOn(key);
    await until(async () => (await acquireOn(backend, next)).status === 'acquired', { what: 'the lock is free' });
    expect(await ownerOn(server, key)).toBe(next.owner);
    expect(await releaseOn(backend, next)).toEqual({ status: 'released' });
  };

  it('an acquire that was given up leaves no lock when the server runs it late [G51]', async () => {
    await open(server.port);
    const claim = claimOn(freshKey());
    const counter = await counterOn(server);
    server.pause();
    expect(await acquireOn(backend, claim)).toMatchObject({ status: 'unavailable' });
    server.resume();
    await until(async () => (await counterOn(server)) > counter, { what: 'the late acquire has run' });
    await until(async () => (await count(`lock:{${claim.key}}`)) === 0, { what: 'its lock is released' });
    await isFree(claim.key);
  });
});
