-- Grants a lock to one more holder, who `fits`; nothing is written yet. A crowd that begins with it `is_new`.
--
-- needs  crowd, kind
--        token  for the readers of a crowd that begins
--        name   of the holder, who owns it
--        finish, weight, most  its end in ms, its permits, and the limit that it names

if not crowd then
  local text_head = kind == 's' and '~s@' .. token or '~p'
  crowd = {kind = kind, head = text_head, texts = {}, count = 0, used = 0, smallest = 9e15, first = 9e15, last = 0, is_new = true}
end
crowd.is_changed = true
local text = finish .. ' ' .. weight .. ' ' .. most .. ' ' .. name
-- @include count-holder
crowd.has_grown = true
