import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import type { RedisSource } from 'nest-redis-lock';
import { attempt, backendOf, untilGranted } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { proxyTo, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

it('clients of the library give up a connection that was accepted and is never answered, and reconnect', async () => {
  const door = await proxyTo(await redisServer());
  const backend = await backendOf({ redis: door.url, commandTimeoutMs: 50 });
  const { made } = door;
  door.dropReplies();
  door.cut();
  await until(() => door.made > made, { what: 'the connection is made again, and not answered' });
  await until(() => door.made > made + 1, { what: 'it is made once more' });
  door.passReplies();
  await untilGranted(backend);
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
    const door = await proxyTo(await redisServer());
    const { client: handed, close } = clientOf(door.url);
    onTestFinished(close);
    const backend = await backendOf({ redis: handed as RedisSource, commandTimeoutMs: 50 });
    const made = door.made;
    door.hold();
    expect(await attempt(backend)).toMatchObject({ status: 'unavailable' });
    await until(() => door.made > made, { what: 'the connection is made again' });
    door.release();
    await untilGranted(backend);
  },
);

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
