import { defineScript } from './script.js';

/** Deletes a lock that its owner still holds: compare and delete in one step. */
export const RELEASE = defineScript({
  name: 'release',
  order: 1,
  keys: ['lock'],
  args: ['owner'],
  body: `
  -- KEYS   lock
  -- ARGV   owner
  -- reply  1 deleted | 0 absent | -1 another's, or no string at all | {error}
  local holder = redis.pcall('GET', lock)
  if holder == owner then return redis.call('DEL', lock) end
  if not holder then return 0 end
  if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
  return -1`,
});
