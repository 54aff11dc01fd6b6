import { MINT, SERVER_TIME } from './fence.js';
import { HAND_OFF } from './hand-off.js';
import { defineScript } from './script.js';

/** Gives back a lock that its owner still holds: to the first in its queue, or to nobody. */
export const RELEASE = defineScript({
  name: 'release',
  order: 1,
  keys: ['lock', 'fence', 'queue'],
  args: ['owner'],
  helpers: [SERVER_TIME, MINT, HAND_OFF],
  body: `
  -- KEYS   lock, fence: its fencing counter, queue: who waits for it
  -- ARGV   owner
  -- reply  1 given back | 0 absent | -1 another's, or no string at all | {error}
  local holder = redis.pcall('GET', lock)
  if holder == owner then
    hand_off(lock, fence, queue)
    return 1
  end
  if not holder then return 0 end
  if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
  return -1`,
});
