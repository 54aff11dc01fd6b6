import { handOff, TAKEN } from './hand-off.js';
import { defineScript } from './script.js';

/**
 * Takes a lock away from whoever holds it: it goes to the first in its queue, or to nobody. The holder's process hears of it, if
 * it listens.
 */
export const FORCE_RELEASE = defineScript({
  name: 'force-release',
  order: 1,
  keys: ['lock', 'fence', 'queue'],
  args: ['key', 'inbox'],
  body: `
  -- KEYS   lock, fence: its fencing counter, queue: who waits for it
  -- ARGV   key: name of the lock, inbox: what the channels of all processes begin with
  -- reply  {1, the owner that it was taken from, '' if that was no string} | 0 absent | {error}
  local taken = redis.pcall('GET', lock)
  if not taken then return 0 end
  if type(taken) == 'table' then
    if not string.find(taken.err, '^WRONGTYPE') then return {taken.err} end
    taken = ''
  else
    local process = string.match(taken, '^(.+)/%w+$')
    if process then redis.pcall('PUBLISH', inbox .. process, taken .. ' ${TAKEN} ' .. key) end
  end
${handOff('{1, taken}')}`,
});
