import { beforeEach, expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

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

/** What a server calls its clients, but the one that asks; those that subscribe have an asterisk. */
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

/** The name of a new connection comes a moment after it. */
async function named(on: RedisServer, ...expected: string[]): Promise<void> {
  let last: string[] = [];
  const asExpected = async () => {
    last = await namesOn(on);
    return JSON.stringify(last) === JSON.stringify(expected);
  };
  await until(asExpected, { what: `the clients are called ${expected.join()}` }).catch(() => {});
  expect(last).toEqual(expected);
}

it.each([
  ['a URL', () => server.url],
  ['options', () => ({ host: '127.0.0.1', port: server.port })],
])('CLIENT LIST names the connections made from %s after the registration [G70]', async (_source, source) => {
  await wait(await openLocks({ redis: source() }));
  await named(server, OURS, `${OURS}*`);
});
