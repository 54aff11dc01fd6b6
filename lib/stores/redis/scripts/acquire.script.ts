import { guardOf, mintTokens, type Clocking } from './fence.js';
import { defineScript } from './script.js';

/**
 * Takes a lock that is free, and mints its fencing token. A lock that its own owner value already holds counts as taken
 * by this attempt (the command ran twice): its ttl starts anew, its token is a new one.
 */
export const ACQUIRE = acquire('acquire', 'always');

/** The same on a node of a Redlock. */
export const VOTE = acquire('vote', 'absent');

function acquire(name: string, clocking: Clocking) {
  return defineScript({
    name,
    order: 3,
    keys: ['lock', 'fence', ...guardOf(clocking).keys],
    args: ['owner', 'ttl', ...guardOf(clocking).args],
    body: `
  -- KEYS   lock, fence: its fencing counter
  -- ARGV   owner, ttl in ms
  ${guardOf(clocking).header}
  -- reply  token | {pttl of the holder, holder} | {error}
  local free = redis.pcall('SET', lock, owner, 'PX', ttl, 'NX')
  if not free then
    local holder = redis.pcall('GET', lock)
    if type(holder) == 'table' then return {holder.err} end
    if holder ~= owner then return {redis.call('PTTL', lock), holder} end
    redis.call('PEXPIRE', lock, ttl)
  elseif free.err then
    return {free.err}
  end
${mintTokens('1', clocking)}`,
  });
}
