-- Reads `value`, the text of a lock, if several owners hold it together: readers, or the holders of permits.
--
-- needs  value   or nil
--        us, holders
--        leaves  the owner to remove, or ''
--        renews  the new expiry of each owner to renew
-- sets   is_together  whether the text has that form. Another text that begins with ~ comes from another program or a later version
--        holders   nil if nobody holds it, otherwise a table without the removed owner:
--                  kind, head         s or p; the beginning of the text
--                  texts              of the holders, in the order of their arrival
--                  count              the number of holders
--                  used, smallest     the sum of their permits; their smallest limit
--                  first, first_text  the expiry in ms and the text of the first to expire
--                  last, last_text    the same of the last to expire
--        left      1 if the removed owner held it, 0 if its hold had expired, nil if it was not there
--        renewed   for each owner to renew: true if it holds the lock, false if its hold has expired, nil if it is not there
--        now       the time in ms
--
-- The text is `~s@<token>` or `~p`, followed by ` <expiry> <permits> <limit> <owner>` for each holder. An expired hold no longer
-- counts. Its text stays for LOST_MS while others hold the lock, so that its owner can learn how it lost the lock.

local LOST_MS = 60000
local now = math.floor(us / 1000)
local left
local renewed = {}
local text_head = string.match(value or '', '^~p') or string.match(value or '', '^~s@%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d')
local is_together = text_head ~= nil
if is_together then
  holders = {kind = string.sub(text_head, 2, 2), head = text_head, texts = {}, count = 0, used = 0, smallest = 9e15, first = 9e15, last = 0}
  local at = #text_head + 1
  repeat
    local from, to, finish, weight, most, name = string.find(value, '^ (%d+) (%d+) (%d+) (%S+)', at)
    if not from then
      is_together = false
      break
    end
    at = to + 1
    local text = string.sub(value, from + 1, to)
    local is_live = tonumber(finish) >= now -- as Redis compares the expiry of keys
    if renews[name] and not renewed[name] then renewed[name] = is_live end
    if name == leaves then
      if is_live then left = 1 end
      left = left or 0
    elseif is_live then
      if renews[name] then
        finish = renews[name]
        text = finish .. ' ' .. weight .. ' ' .. most .. ' ' .. name
      end
      -- @include count-holder
    elseif tonumber(finish) >= now - LOST_MS then
      holders.texts[#holders.texts + 1] = text
    end
  until at > #value
  if not is_together or holders.last == 0 then holders = nil end
end
