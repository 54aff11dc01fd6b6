import { readFileSync } from 'node:fs';
import type { RedisOptions } from 'ioredis';
import type { RedisServer } from '../support/redis-server.js';

const page = readFileSync(new URL('../../docs/rights.md', import.meta.url), 'utf8');
const [name = '', ...rules] = /^ACL SETUSER (.*)$/m.exec(page)![1]!.split(' ');

/** The rules of docs/rights.md that give a right: commands, keys, channels. */
export const RIGHTS = rules.filter((rule) => /^[+~&]/.test(rule));

/**
 * Creates the user of that page, with changes to its rules.
 * @returns how to log in
 */
export async function aclUser(
  server: RedisServer,
  { without = [], also = [] }: { without?: readonly string[]; also?: readonly string[] } = {},
): Promise<RedisOptions> {
  const kept = rules.filter((rule) => !without.includes(rule));
  await server.command('ACL', 'SETUSER', name, ...kept, ...also);
  const password = rules.find((rule) => rule.startsWith('>'))!.slice(1);
  return { host: '127.0.0.1', port: server.port, username: name, password };
}

/** The commands that Redis has refused for lack of a right since the last call. */
export async function refusals(server: RedisServer): Promise<string[]> {
  const log = (await server.command('ACL', 'LOG')) as unknown[][];
  await server.command('ACL', 'LOG', 'RESET');
  // ioredis reports its name unasked (CLIENT SETINFO, SETNAME), and works without the right to do so.
  return log.map((entry) => String(entry[entry.indexOf('object') + 1])).filter((what) => !what.startsWith('client'));
}
