import { handOff } from './hand-off.js';
import { defineScript } from './script.js';

/** Gives up a place in the queue of a lock; a lock that was handed over to it meanwhile goes to the next. */
export const WITHDRAW = defineScript({
  name: 'withdraw',
  order: 1,
  keys: ['lock', 'fence', 'queue'],
  args: ['owner', 'entry'],
  body: `
  -- KEYS   lock, fence: its fencing counter, queue: who waits for it
  -- ARGV   owner, its entry in the queue
  -- reply  1 the lock went to the next | 0 it was another's, or nobody's | {error}
  redis.pcall('ZREM', queue, entry)
  local holder = redis.pcall('GET', lock)
  if holder ~= owner then return type(holder) == 'table' and {holder.err} or 0 end
${handOff('1')}`,
});
