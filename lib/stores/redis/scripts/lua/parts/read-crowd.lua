-- Reads `value`, the text of a lock, if several hold it together: readers, or the holders of permits.
--
-- needs  value   or nil
--        us, crowd
--        leaves  the owner that is left out, or ''
--        renews  the owners whose ends are set anew, if they still hold it: the new end of each
-- sets   is_crowd  whether it is such a text. Any other one that begins with ~ is of another program, or of a version to come
--        crowd     who holds it, without the one that is left out; nil if nobody does:
--                  kind, head           s or p; what its text begins with
--                  texts                of the holders, in the order of their arrival
--                  count                how many they are
--                  used, smallest       permits of all of them; the smallest limit that one of them names
--                  first, first_text    the one whose time is over first, and when, in ms
--                  last, last_text      the one whose time is over last
--        left      1 if the owner that is left out held it, 0 if its time was over, nil if it was not there
--        renewed   of the owners to renew: true if it holds it, false if its time is over, nil if it is not there
--        now       the time in ms
--
-- The text is `~s@<token> ` or `~p `, and for each holder `<end> <permits> <limit> <owner>`, separated by spaces. Whose end has
-- passed does not hold it any more. Its text stays for LOST_MS, as long as others hold the lock, so that it learns what became of it.

local LOST_MS = 60000
local now = math.floor(us / 1000)
local left
local renewed = {}
local text_head = string.match(value or '', '^~p') or string.match(value or '', '^~s@%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d')
local is_crowd = text_head ~= nil
if is_crowd then
  crowd = {kind = string.sub(text_head, 2, 2), head = text_head, texts = {}, count = 0, used = 0, smallest = 9e15, first = 9e15, last = 0}
  local at = #text_head + 1
  repeat
    local from, to, finish, weight, most, name = string.find(value, '^ (%d+) (%d+) (%d+) (%S+)', at)
    if not from then
      is_crowd = false
      break
    end
    at = to + 1
    local text = string.sub(value, from + 1, to)
    local is_live = tonumber(finish) >= now -- as Redis has it of keys
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
      crowd.texts[#crowd.texts + 1] = text
    end
  until at > #value
  if not is_crowd or crowd.last == 0 then crowd = nil end
end
