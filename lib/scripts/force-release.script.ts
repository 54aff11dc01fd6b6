import { handOff } from './hand-off.js';
import { defineScript } from './script.js';

/** Takes a lock away from whoever holds it: it goes to the first in its queue, or to nobody. */
export const FORCE_RELEASE = defineScript({
  name: 'force-release',
  order: 1,
  keys: ['lock', 'fence', 'queue'],
  args: [],
  body: `
  -- KEYS   lock, fence: its fencing counter, queue: who waits for it
  -- reply  1 taken away | 0 absent
  if redis.call('EXISTS', lock) == 0 then return 0 end
${handOff('1')}`,
});
