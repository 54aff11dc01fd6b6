import { guardOf, mintTokens, type Clocking } from './fence.js';
import { handOff } from './hand-off.js';
import { defineScript } from './script.js';

/** The queue of a lock outlives the last sign of those who stand in it, in milliseconds. */
const QUEUE_TTL_MS = 10_000;

/**
 * The attempt of somebody who waits: takes the lock if it is free or was handed over to this owner, and mints its
 * tokens; otherwise takes a place in the queue, unless it has one. In fair mode a free lock goes to the first in the
 * queue, also when it was asked for by others.
 */
export const CONTEND = contend('contend', 'always');

/** The same on a node of a Redlock. */
export const VOTE_OR_QUEUE = contend('vote-or-queue', 'absent');

function contend(name: string, clocking: Clocking) {
  return defineScript({
    name,
    order: 3,
    keys: ['lock', 'fence', 'queue', ...guardOf(clocking).keys],
    args: ['owner', 'ttl', 'count', 'entry', 'fair', ...guardOf(clocking).args],
    body: `
  -- KEYS   lock, fence: its fencing counter, queue: who waits for it, a sorted set by order of arrival
  -- ARGV   owner, ttl in ms, count of tokens, entry for the queue or '', fair: '1' or '0'
  ${guardOf(clocking).header}
  -- reply  first token | {pttl of the holder, holder} | {error}
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return {holder.err} end
  if holder ~= owner and entry ~= '' and (holder or fair == '1') then
    local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    redis.pcall('ZADD', queue, 'NX', (tonumber(last) or 0) + 1, entry)
    redis.call('PEXPIRE', queue, ${QUEUE_TTL_MS})
  end
  if not holder and fair == '1' then
    local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
    if first and first ~= entry then
      local function hand_off()
        ${handOff()}
      end
      hand_off()
      holder = redis.call('GET', lock)
    end
  end
  if holder and holder ~= owner then return {redis.call('PTTL', lock), holder} end
  local taken = redis.pcall('SET', lock, owner, 'PX', ttl)
  if taken.err then return {taken.err} end
  if entry ~= '' then redis.pcall('ZREM', queue, entry) end
${mintTokens('count', clocking)}`,
  });
}
