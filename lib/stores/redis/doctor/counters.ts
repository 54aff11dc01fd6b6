import type { RedisClient } from '../client/redis-client.js';
import { ask, type Answer } from '../client/ask.js';

/** A fencing counter with a suspicious value. */
export interface OddCounter {
  /** Its key in Redis. */
  key: string;
  /** How far it is ahead of the server's clock, in milliseconds; undefined if it is not a number, or out of range. */
  aheadMs?: number;
}

/**
 * Returns the counters that are not numbers or are more than a second ahead of the server clock. Their keys are passed as arguments,
 * because they may be in many slots of one master of a Cluster.
 */
const FIND_ODD = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local odd = {}
for _, key in ipairs(ARGV) do
  local value = redis.pcall('GET', key)
  local number = type(value) == 'string' and tonumber(value)
  local is_other_type = type(value) == 'table' and string.find(value.err, 'WRONGTYPE')
  if is_other_type or (type(value) == 'string' and not (number and number < 9e15)) then
    table.insert(odd, {key, ''})
  elseif number and number > now + 1000000 then
    table.insert(odd, {key, string.format('%.0f', (number - now) / 1000)})
  end
end
return odd`;

/** The number of counters that one call reads. It is small, so that the call delays nobody else. */
const KEYS_PER_CALL = 512;

/** @param keys the keys of all counters that may exist on this server */
export async function findOddCounters(client: RedisClient, keys: readonly string[]): Promise<OddCounter[]> {
  const calls: ['EVAL', ...string[]][] = [];
  for (let at = 0; at < keys.length; at += KEYS_PER_CALL) {
    calls.push(['EVAL', FIND_ODD, '0', ...keys.slice(at, at + KEYS_PER_CALL)]);
  }
  return (await ask(client, calls)).flatMap(oddOf);
}

/** Ignores a refusal: another check reports a missing right to EVAL. */
function oddOf(answer: Answer): OddCounter[] {
  if (!('value' in answer) || !Array.isArray(answer.value)) return [];
  return answer.value.map(([key, ahead]) => ({ key: String(key), ...(ahead !== '' && { aheadMs: Number(ahead) }) }));
}
