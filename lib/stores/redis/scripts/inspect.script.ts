import { defineScript } from './script.js';

/**
 * Reads a lock. The ttl of the fencing counter starts at the acquisition, so what is gone of it tells for how long the
 * lock is held, with no clock but the server's.
 */
export const INSPECT = defineScript({
  name: 'inspect',
  order: 4,
  keys: ['lock', 'fence'],
  args: [],
  body: `
  -- KEYS   lock, fence: its fencing counter
  -- reply  0 free | {pttl, holder, fencing token or '', pttl of the fence} | {error}
  local holder = redis.pcall('GET', lock)
  if not holder then return 0 end
  if type(holder) == 'table' then return {holder.err} end
  local token = redis.pcall('GET', fence)
  if not tonumber(token) then token = '' end
  return {redis.call('PTTL', lock), holder, token, redis.call('PTTL', fence)}`,
});
