import { defineScript } from './script.js';

/** A fencing counter outlives its last use by a day, in milliseconds. */
export const FENCE_TTL_MS = 86_400_000;

/**
 * Takes each lock that is free, and mints its fencing token. A lock that its own owner value already holds counts as
 * taken by this attempt (the command ran twice): its ttl starts anew, its token stays.
 *
 * A counter that is absent starts at the server's time in microseconds: above anything the old one can have reached,
 * so tokens grow on even when the server restarted empty. Stays below 2^53 until the year 2255.
 */
export const ACQUIRE = defineScript({
  name: 'acquire',
  keysPerOperation: 2,
  order: 3,
  source: `
-- KEYS  [lock, fence] per lock
-- ARGV  [owner, ttl in ms] per lock
-- reply per lock: token | {pttl of the holder, holder} | {error}
local replies, pcall = {}, redis.pcall
for i = 1, #KEYS, 2 do
  local lock, fence, owner, ttl = KEYS[i], KEYS[i + 1], ARGV[i], ARGV[i + 1]
  local reply
  local set = pcall('SET', lock, owner, 'PX', ttl, 'NX')
  local holder = owner
  if set == false then
    holder = pcall('GET', lock)
    if holder == owner then redis.call('PEXPIRE', lock, ttl) end
  elseif set.err then
    holder = set
  end
  if holder == owner then
    local token = set and pcall('INCR', fence) or pcall('GET', fence) or 0
    reply = tonumber(token)
    if not reply then
      redis.call('DEL', lock)
      reply = {type(token) == 'table' and token.err or 'ERR fencing counter is not a number'}
    elseif reply < 1e15 then
      local time = redis.call('TIME')
      reply = time[1] * 1000000 + time[2]
      redis.call('SET', fence, string.format('%.0f', reply), 'PX', ${FENCE_TTL_MS})
    else
      pcall('PEXPIRE', fence, '${FENCE_TTL_MS}')
    end
  elseif type(holder) == 'table' then
    reply = {holder.err}
  else
    reply = {redis.call('PTTL', lock), holder}
  end
  replies[#replies + 1] = reply
end
return replies`,
});
