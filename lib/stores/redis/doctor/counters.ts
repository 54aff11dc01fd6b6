import type { RedisClient } from '../client/redis-client.js';
import { ask, type Answer } from '../client/ask.js';

/** A fencing counter from which tokens are not minted as they should be. */
export interface OddCounter {
  /** Its key in Redis. */
  key: string;
  /** How far it is ahead of the time of the server, in milliseconds; undefined when it is no number, or out of range. */
  aheadMs?: number;
}

/**
 * Reads counters, and replies with those that are no number, or more than a second ahead of the server's time. Their keys
 * are arguments, since they may be in many slots of one master of a Cluster; those of other masters are left out.
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

/** How many counters one call reads: few enough to hold up nobody else. */
const KEYS_PER_CALL = 512;

/** @param keys of all counters that there may be on this server */
export async function findOddCounters(client: RedisClient, keys: readonly string[]): Promise<OddCounter[]> {
  const calls: ['EVAL', ...string[]][] = [];
  for (let at = 0; at < keys.length; at += KEYS_PER_CALL) {
    calls.push(['EVAL', FIND_ODD, '0', ...keys.slice(at, at + KEYS_PER_CALL)]);
  }
  return (await ask(client, calls)).flatMap(oddOf);
}

/** A refusal is not of its own: without the right to EVAL there are no locks, which is found out anyway. */
function oddOf(answer: Answer): OddCounter[] {
  if (!('value' in answer) || !Array.isArray(answer.value)) return [];
  return answer.value.map(([key, ahead]) => ({ key: String(key), ...(ahead !== '' && { aheadMs: Number(ahead) }) }));
}
