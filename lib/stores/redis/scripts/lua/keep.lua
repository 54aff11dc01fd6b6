-- Keeps a lock for a given time after the work of its owner has ended. Until then nobody else can get it, and nothing extends it.
--
-- KEYS   lock
-- ARGV   ttl    in ms
--        owner  with its @
-- reply  1        kept
--        0        nobody holds it
--        -1       another owner holds it, or its value is not a string
--        {error}
--
-- The value ends in = instead of +. If the command runs twice, the second run sets its own ttl, which is the time that is left then.
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
