import { defineScript } from './script.js';

/** A fencing counter outlives its last use by a day, in milliseconds. */
export const FENCE_TTL_MS = 86_400_000;

/**
 * Takes a lock that is free, and mints its fencing token. A lock that its own owner value already holds counts as taken
 * by this attempt (the command ran twice): its ttl starts anew, its token stays.
 *
 * A counter that is absent starts at the server's time in microseconds: above anything the old one can have reached,
 * so tokens grow on even when the server restarted empty. Stays below 2^53 until the year 2255.
 */
export const ACQUIRE = defineScript({
  name: 'acquire',
  order: 3,
  keys: ['lock', 'fence'],
  args: ['owner', 'ttl'],
  body: `
  -- KEYS   lock, fence: its fencing counter
  -- ARGV   owner, ttl in ms
  -- reply  token | {pttl of the holder, holder} | {error}
  local set, token = redis.pcall('SET', lock, owner, 'PX', ttl, 'NX')
  if not set then
    local holder = redis.pcall('GET', lock)
    if type(holder) == 'table' then return {holder.err} end
    if holder ~= owner then return {redis.call('PTTL', lock), holder} end
    redis.call('PEXPIRE', lock, ttl)
    token = redis.pcall('GET', fence) or 0
  elseif set.err then
    return {set.err}
  else
    token = redis.pcall('INCR', fence)
  end
  local number = tonumber(token)
  if not number then
    redis.call('DEL', lock)
    return {type(token) == 'table' and token.err or 'ERR fencing counter is not a number'}
  elseif number < 1e15 then
    local time = redis.call('TIME')
    number = time[1] * 1000000 + time[2]
    redis.call('SET', fence, string.format('%.0f', number), 'PX', ${FENCE_TTL_MS})
  else
    redis.call('PEXPIRE', fence, '${FENCE_TTL_MS}')
  end
  return number`,
});
