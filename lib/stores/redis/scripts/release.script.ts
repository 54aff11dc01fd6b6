import { handOff } from './hand-off.js';
import { defineScript } from './script.js';

/** Gives back a lock that its owner still holds: to the first in its queue, or to nobody. */
export const RELEASE = defineScript({
  name: 'release',
  order: 1,
  keys: ['lock', 'fence', 'queue'],
  args: ['owner'],
  body: `
  -- KEYS   lock, fence: its fencing counter, queue: who waits for it
  -- ARGV   owner
  -- reply  1 given back | 0 absent | -1 another's, or no string at all | {error}
  local holder = redis.pcall('GET', lock)
  if holder == owner then
${handOff('1')}
  end
  if not holder then return 0 end
  if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
  return -1`,
});
