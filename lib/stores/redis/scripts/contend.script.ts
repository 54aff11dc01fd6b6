import { ASK_TIME, guardOf, mintTokens, type Clocking } from './fence.js';
import { handOff } from './hand-off.js';
import { defineScript } from './script.js';

/** The queue of a lock outlives the last sign of those who stand in it, in milliseconds. */
const QUEUE_TTL_MS = 10_000;

/**
 * The attempt of somebody who waits: takes the lock if it is free or was handed over to this owner, and mints its
 * tokens; otherwise takes a place in the queue, unless it has one. Places are numbered by the server's time, so that one that
 * was passed over, or lost with the queue, is taken again in its old order. In fair mode a free lock goes to the first in the
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
    args: ['owner', 'ttl', 'count', 'entry', 'number', 'fair', ...guardOf(clocking).args],
    body: `
  -- KEYS   lock, fence: its fencing counter, queue: who waits for it, a sorted set by order of arrival
  -- ARGV   owner, ttl in ms, count of tokens, entry for the queue or '', the number that it had there ('' none yet, 0
  --        not known), fair: '1' or '0'
  ${guardOf(clocking).header}
  -- reply  first token | {pttl of the holder, holder} | {the same, number of its entry, 1: that was gone, 0: not} | {error}
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return {holder.err} end
  local wasGone
  if holder ~= owner and entry ~= '' and (holder or fair == '1') then
    local before = number
    number = tonumber(before) or 0
    if number == 0 then
      local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
      ${ASK_TIME}
      number = math.max(us, (tonumber(last) or 0) + 1)
    end
    wasGone = redis.pcall('ZADD', queue, 'NX', number, entry) == 1 and before ~= '' and 1 or 0
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
  if holder and holder ~= owner then
    if entry == '' then return {redis.call('PTTL', lock), holder} end
    return {redis.call('PTTL', lock), holder, number, wasGone}
  end
  local taken = redis.pcall('SET', lock, owner, 'PX', ttl)
  if taken.err then return {taken.err} end
  if entry ~= '' then redis.pcall('ZREM', queue, entry) end
${mintTokens('count', clocking)}`,
  });
}
