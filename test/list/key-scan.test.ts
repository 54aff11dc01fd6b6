import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { type RedisClient } from '../../lib/stores/redis/client/redis-client.js';
import type { RedisConnection } from '../../lib/stores/redis/client/redis-connection.js';
import { KeyScan } from '../../lib/stores/redis/node/key-scan.js';
import { LockKeys } from '../../lib/stores/redis/node/lock-keys.js';

type Ask = (cursor: string, pattern: string) => Promise<unknown>;

/** Servers that answer SCAN as the test says; the client has a connection to each. */
function scanOf(
  servers: Record<string, Ask>,
  slots: readonly (string | undefined)[] = Object.keys(servers),
  generation: () => unknown = () => servers,
): KeyScan {
  const masters = Object.entries(servers).map(([name, ask]) => ({
    name,
    get generation() {
      return generation();
    },
    call: (_scan: string, cursor: string, _match: string, pattern: string) => ask(cursor, pattern),
  }));
  const client = { name: 'cluster', topology: { masters: () => masters, servers: new Set(slots) } };
  const connection = { isReady: true, client: client as unknown as RedisClient, suspect: () => {} };
  return new KeyScan(connection as unknown as RedisConnection, new LockKeys('lock'), 50);
}

const page = (cursor: unknown, ...keys: string[]): unknown => [cursor, keys.map((key) => `lock:{${key}}`)];
const REQUEST = { match: '*', limit: 10, budgetMs: 1_000 };

it('a search has one command in flight to each server, goes on where that ended, and finds each key once [G439]', async () => {
  const pages: Record<string, unknown> = { 0: page(7, 'a', 'b'), 7: page('9', 'b', 'c'), 9: page('0', 'd') };
  const inFlight: Record<string, number> = { one: 0, other: 0 };
  let most = 0;
  const server =
    (name: string): Ask =>
    async (cursor) => {
      most = Math.max(most, ++inFlight[name]!);
      await delay(1);
      inFlight[name]!--;
      return pages[cursor];
    };
  const scan = scanOf({ one: server('one'), other: server('other') });
  expect(await scan.run(REQUEST)).toEqual({
    keys: ['a', 'b', 'c', 'd'],
    complete: true,
    scanned: 6_000,
  });
  expect(most).toBe(1);
});

it('a search for keys with many stars makes Redis look for the text before the first one, and compares the rest itself [G536]', async () => {
  const patterns: string[] = [];
  const server: Ask = (_cursor, pattern) => {
    patterns.push(pattern);
    return Promise.resolve(page('0', 'a?1-b-c', 'a?1-c-b', 'a?1'));
  };
  const match = `a?1${'*'.repeat(500)}b*c`;
  expect(await scanOf({ one: server }).run({ ...REQUEST, match })).toMatchObject({ keys: ['a?1-b-c'] });
  expect(await scanOf({ one: server }).run({ ...REQUEST, match: 'a?1' })).toMatchObject({ keys: ['a?1'] });
  expect(patterns).toEqual(['lock:{a\\?1*}', 'lock:{a\\?1}']);
});
