import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { RedisSource } from 'nest-redis-lock';
import type { LockBackend } from 'nest-redis-lock/testing';
import { acquireOn, claimOn, connected, freshKey } from '../support/claims.js';
import { letVote } from '../support/let-vote.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { redisServer } from '../support/stage.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

describe('Clients', () => {
  let server: RedisServer;
  let backend: LockBackend;
  const clients: Redis[] = [];
  /** Three addresses of one server, so that its connections can be counted for each. */
  let doors: TcpProxy[];

  beforeAll(async () => {
    server = await RedisServer.start();
    await letVote([server]);
    doors = await Promise.all([1, 2, 3].map(() => TcpProxy.start(server.port)));
  });
  afterEach(async () => {
    await backend.close();
    for (const client of clients.splice(0)) client.disconnect();
  });
  afterAll(async () => {
    await Promise.all(doors.map((door) => door.stop()));
    await server.stop();
  });

  it('of the library give up a connection that was accepted and is never answered, and reconnect', async () => {
    const door = doors[0]!;
    backend = await connected({ redis: door.url, commandTimeoutMs: 50 });
    const { made } = door;
    door.dropReplies();
    door.cut();
    await until(() => door.made > made, { what: 'the connection is made again, and not answered' });
    await until(() => door.made > made + 1, { what: 'it is made once more' });
    door.passReplies();
    const acquired = async () => (await acquireOn(backend, claimOn(freshKey()))).status === 'acquired';
    await until(acquired, { what: 'it is usable' });
  });

  it.each<[client: string, clientOf: (url: string) => { client: object; close(): void }]>([
    [
      'ioredis',
      (url) => {
        const made = new Redis(url, { socketTimeout: 5_000, keepAlive: 10_000 }).on('error', () => {});
        return { client: made, close: () => made.disconnect() };
      },
    ],
    [
      'node-redis',
      (url) => {
        // As in docs/clients.md.
        const reconnectStrategy = (retries: number) => Math.min(retries * 50, 1_000);
        const socket = { socketTimeout: 15_000, reconnectStrategy };
        const made = createClient({ url, pingInterval: 5_000, socket }).on('error', () => {});
        return { client: made, close: () => made.destroy() };
      },
    ],
  ])(
    'a client of %s of the application with a socketTimeout gives up a connection that does not answer, and locks can be acquired again [G55]',
    async (_, clientOf) => {
      const door = doors[0]!;
      const { client: handed, close } = clientOf(door.url);
      onTestFinished(close);
      backend = await connected({ redis: handed as RedisSource, commandTimeoutMs: 50 });
      const made = door.made;
      door.hold();
      expect(await acquireOn(backend, claimOn(freshKey()))).toMatchObject({ status: 'unavailable' });
      await until(() => door.made > made, { what: 'the connection is made again' });
      door.release();
      const acquired = async () => (await acquireOn(backend, claimOn(freshKey()))).status === 'acquired';
      await until(acquired, { what: 'it is usable' });
    },
  );
});

/** The names of the server's clients, except the asking one; subscribers have an asterisk. */
async function namesOn(of: RedisServer): Promise<string[]> {
  const self = `id=${String(await of.command('CLIENT', 'ID'))} `;
  const clients = String(await of.command('CLIENT', 'LIST'))
    .trim()
    .split('\n');
  return clients
    .filter((client) => !client.startsWith(self))
    .map((client) => / name=(\S*) /.exec(client)![1]! + (/ sub=1 /.test(client) ? '*' : ''))
    .sort();
}

it.each<[what: string, source: (server: RedisServer) => RedisSource]>([
  ['a URL', ({ url }) => url],
  ['options', ({ port }) => ({ host: '127.0.0.1', port })],
])('CLIENT LIST names the connections made from %s after the registration [G70]', async (_what, source) => {
  const server = await redisServer();
  const locks = await openLocks({ redis: source(server) });
  await server.command('SET', 'lock:{key}', 'another', 'PX', 60_000);
  locks.acquire('key').catch(() => {}); // listens for its turn
  const expected = ['nest-redis-lock:default', 'nest-redis-lock:default*'];
  // The name of a new connection comes a moment after it.
  await until(async () => String(await namesOn(server)) === String(expected), { what: 'both have their names' });
});
