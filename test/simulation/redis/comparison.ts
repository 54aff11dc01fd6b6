import { isDeepStrictEqual } from 'node:util';
import type { Redis } from 'ioredis';
import { expect } from 'vitest';
import { KEYS } from './random-steps.js';
import type { RedisEngine } from './redis-engine.js';
import { ReplyError, Status, type Reply } from './replies.js';
import { SortedSet } from './sorted-set.js';

/** The ttls of the steps, in milliseconds: that of a grant that was handed over, and the longest of `randomStep`. No other numbers of replies are like them. */
export const [SHORTEST_TTL_MS, LONGEST_TTL_MS] = [2_000, 700_000];

export function expectSame(of: string, simulated: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(simulated, expected)) expect(simulated, of).toEqual(expected); // which takes far longer
}

/** A script sees the time of the simulation; no line of it has another number. */
export async function onReal(real: Redis, args: readonly string[], us: number): Promise<unknown> {
  const [name, ...rest] = args;
  const [seconds, micros] = [Math.floor(us / 1e6), us % 1e6];
  const withTime = `local real = redis local redis = { pcall = real.pcall, call = function(name, ...) if name == 'TIME' then return {'${seconds}', '${micros}'} end return real.call(name, ...) end } `;
  if (name === 'EVAL' && rest.length > 1) rest[0] = withTime + rest[0];
  return (real.callBuffer(name!, ...rest) as Promise<unknown>).catch((error: Error) => error);
}

const STATES = `local states = {}
for at, key in ipairs(KEYS) do
  local type = redis.call('TYPE', key).ok
  local value = false
  if type == 'string' then value = redis.call('GET', key) end
  if type == 'list' then value = redis.call('LRANGE', key, 0, -1) end
  if type == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  states[at] = { type, redis.call('PTTL', key), value }
end
return states`;

/** What a real server has in all keys of the steps. */
export function statesOfReal(real: Redis): Promise<unknown> {
  return real.callBuffer('EVAL', STATES, String(KEYS.length), ...KEYS) as Promise<unknown>;
}

/** What a simulated one has in them. */
export function statesOfSimulated(engine: RedisEngine): Reply {
  return KEYS.map((key) => stateOf(engine, bytesOf(key)));
}

function stateOf(engine: RedisEngine, key: string): Reply {
  const entry = engine.data.entry(key);
  const ask = (...args: string[]) => engine.execute(args) as Reply;
  const value =
    entry?.value instanceof SortedSet ? ask('ZRANGE', key, '0', '-1', 'WITHSCORES') : (entry?.value ?? null);
  return [(ask('TYPE', key) as Status).text, ask('PTTL', key), value];
}

/** A reply in a form that can be compared: what is no promise of Redis, or names a line or a hash, is left out. */
export function shown(reply: unknown): unknown {
  if (Buffer.isBuffer(reply)) return latin(reply);
  if (reply instanceof Status) return reply.text;
  if (reply instanceof ReplyError) return errorShown(reply.text);
  if (reply instanceof Error) return errorShown(reply.message);
  if (!Array.isArray(reply)) return reply;
  const list = reply.map(shown);
  if (list[0] === 'used') return ['used']; // any key
  if (list.length === 2 && list[0] === '0' && Array.isArray(list[1])) return ['0', [...list[1]].sort()]; // of SCAN, in any order
  return list;
}

function errorShown(message: string): { error: string } {
  if (message.includes('user_script:') && message.startsWith('ERR user_script')) return { error: 'of Lua' };
  return { error: message.replace(/ script: [\da-f]+, on @user_script:\d+\.?$/, '').replace(/, with args .*/s, '') };
}

/** @returns the reply of the real server; with the remaining times of the other where they differ by no more than has passed */
export function asShown(real: unknown, simulated: unknown, elapsedMs: number): unknown {
  const reply = shown(real);
  if (Array.isArray(reply) && Array.isArray(simulated))
    return reply.map((each, at) => asShown(each, simulated[at], elapsedMs));
  if (typeof reply !== 'number' || typeof simulated !== 'number') return reply;
  const isLeft = simulated >= SHORTEST_TTL_MS && simulated <= LONGEST_TTL_MS;
  return isLeft && reply <= simulated && simulated - reply <= elapsedMs ? simulated : reply;
}

export const latin = (bytes: Buffer) => bytes.toString('latin1');
export const bytesOf = (text: string) => Buffer.from(text, 'utf8').toString('latin1');
