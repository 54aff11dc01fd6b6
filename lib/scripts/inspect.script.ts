import { defineScript } from './script.js';

/**
 * Reads each lock. The ttl of the fencing counter starts at the acquisition, so what is gone of it tells for how long
 * the lock is held, with no clock but the server's.
 */
export const INSPECT = defineScript({
  name: 'inspect',
  keysPerOperation: 2,
  order: 4,
  source: `
-- KEYS  [lock, fence] per lock
-- reply per lock: 0 free | {pttl, holder, fencing token or '', pttl of the fence} | {error}
local replies = {}
for i = 1, #KEYS, 2 do
  local holder = redis.pcall('GET', KEYS[i])
  local reply = 0
  if type(holder) == 'table' then
    reply = {holder.err}
  elseif holder then
    local token = redis.pcall('GET', KEYS[i + 1])
    if not tonumber(token) then token = '' end
    reply = {redis.call('PTTL', KEYS[i]), holder, token, redis.call('PTTL', KEYS[i + 1])}
  end
  replies[#replies + 1] = reply
end
return replies`,
});
