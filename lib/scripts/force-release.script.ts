import { HAND_OFF } from './hand-off.js';
import { defineScript } from './script.js';

/** Takes a lock away from whoever holds it: it goes to the first in its queue, or to nobody. */
export const FORCE_RELEASE = defineScript({
  name: 'force-release',
  order: 1,
  keys: ['lock', 'queue'],
  args: [],
  helpers: [HAND_OFF],
  body: `
  -- KEYS   lock, queue: who waits for it
  -- reply  1 taken away | 0 absent
  if redis.call('EXISTS', lock) == 0 then return 0 end
  hand_off(lock, queue)
  return 1`,
});
