import { MINT, SERVER_TIME } from './fence.js';
import { HAND_OFF } from './hand-off.js';
import { defineScript } from './script.js';

/** Takes a lock away from whoever holds it: it goes to the first in its queue, or to nobody. */
export const FORCE_RELEASE = defineScript({
  name: 'force-release',
  order: 1,
  keys: ['lock', 'fence', 'queue'],
  args: [],
  helpers: [SERVER_TIME, MINT, HAND_OFF],
  body: `
  -- KEYS   lock, fence: its fencing counter, queue: who waits for it
  -- reply  1 taken away | 0 absent
  if redis.call('EXISTS', lock) == 0 then return 0 end
  hand_off(lock, fence, queue)
  return 1`,
});
