import { defineScript } from './script.js';

/** Starts the ttl of a lock anew that its owner still holds. */
export const EXTEND = extend('extend', 'return 0');

/**
 * The same, except that an absent lock is put back: a node of a Redlock that restarted would otherwise stay without it. That
 * never counts as held, only as mended.
 */
export const RESTORE = extend(
  'restore',
  `local set = redis.pcall('SET', lock, owner, 'PX', ttl)
    return set.err and {set.err} or 2`,
);

/** @param whenAbsent Lua that replies for a lock that nobody holds */
function extend(name: string, whenAbsent: string) {
  return defineScript({
    name,
    order: 2,
    locksPerCall: 100, // nobody waits for the answers: few large calls cost least
    keys: ['lock'],
    args: ['owner', 'ttl'],
    body: `
  -- KEYS   lock
  -- ARGV   owner, ttl in ms
  -- reply  1 extended | 2 put back | 0 absent | -1 another's, or no string at all | {error}
  local holder = redis.pcall('GET', lock)
  if holder == owner then return redis.call('PEXPIRE', lock, ttl) end
  if not holder then
    ${whenAbsent}
  end
  if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
  return -1`,
  });
}
