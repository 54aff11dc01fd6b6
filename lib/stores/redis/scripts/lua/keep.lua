-- Keeps a lock after the work of its owner: it stands for its time, is handed to nobody, and ends by itself.
--
-- KEYS   lock
-- ARGV   ttl    in ms
--        owner  with its @
-- reply  1        kept
--        0        nobody holds it
--        -1       another owner holds it, or it is no string
--        {error}
--
-- Its value has = in place of the +. A repetition keeps it for its own ttl, which is what is left by then.
--
-- @order 1

local lock = KEYS[1]
local ttl, owner = ARGV[1], ARGV[2]

local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  if string.sub(value, 1, -17) ~= owner and string.sub(value, 1, -18) ~= owner then return -1 end
  local kept = redis.pcall('SET', lock, string.sub(value, 1, #owner + 16) .. '=', 'PX', ttl)
  return kept.err and {kept.err} or 1
end
-- @include not-a-string
