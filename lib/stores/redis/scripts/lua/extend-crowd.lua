-- Starts the ttl anew of one who holds a lock together with others, and leaves theirs as they are: the lock stands for as long as any
-- of them holds it.
--
-- KEYS   lock
-- ARGV   once a call:
--        ttl    in ms
--        for each lock:
--        owner
-- reply  1        extended
--        0        nobody holds it, or its time was over
--        -1       others hold it, or it is no string
--        {error}
--
-- @order 2
-- @locks-per-call 100  no call waits for the answer: few large calls cost least

local us

local lock = KEYS[1]
local ttl = ARGV[1] -- once a call
local owner = ARGV[2]

local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  -- @include not-a-string
end
local crowd
local leaves, renews = '', {}
-- @include ask-time
renews[owner] = string.format('%.0f', math.floor(us / 1000) + ttl)
-- @include read-crowd
if not is_crowd then return -1 end
if not crowd or renewed[owner] == false then return 0 end
if not renewed[owner] then return -1 end
-- @include write-crowd
return crowd.problem and {crowd.problem} or 1
