-- Writes down, on an operator's word, that a node of a Redlock has kept all locks that it ever granted, as there are none:
-- so it votes at once. Looks for any key of the prefix in the same step, so that no lock, counter or admission can come
-- between.
--
-- KEYS   admission  its name begins with the prefix, as the server knows it
-- ARGV   run        of the server, as the caller read it before it looked: a start since then shows, see admit.lua
--        age        for how long it shall have kept them, in us, or '' to look only
-- reply  0               no key of the prefix is there; written, unless it was to look only
--        {'used', key}   one is there
--        {'full', keys}  the server has more keys than it may be held up for
--        {error}
--
-- @order 0

local admission = KEYS[1]
local run, age = ARGV[1], ARGV[2]

local prefix = string.sub(admission, 1, -#'admission' - 1)
local pattern = string.gsub(prefix, '[%*%?%[%]\\]', '\\%0') .. '*'
local cursor, looked = '0', 0
repeat
  local page = redis.pcall('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1000)
  if page.err then return {page.err} end
  if page[2][1] then return {'used', page[2][1]} end
  cursor, looked = page[1], looked + 1000
until cursor == '0' or looked >= 100000
if cursor ~= '0' then return {'full', looked} end
if age == '' then return 0 end
local time = redis.call('TIME')
local since = string.format('%.0f', time[1] * 1000000 + time[2] - age)
local set = redis.pcall('SET', admission, since .. ' 0 ' .. run)
return set.err and {set.err} or 0
