import { expect } from 'vitest';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

/** What a server calls its clients, but the one that asks; those that subscribe have an asterisk. */
export async function namesOn(of: RedisServer): Promise<string[]> {
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
export async function named(on: RedisServer, ...expected: string[]): Promise<void> {
  let last: string[] = [];
  const asExpected = async () => {
    last = await namesOn(on);
    return JSON.stringify(last) === JSON.stringify(expected);
  };
  await until(asExpected, { what: `the clients are called ${expected.join()}` }).catch(() => {});
  expect(last).toEqual(expected);
}
