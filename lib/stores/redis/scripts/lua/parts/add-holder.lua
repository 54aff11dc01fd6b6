-- Adds a holder that `fits` to the holders of a lock, but writes nothing yet. If there were none, `holders` `is_new`.
--
-- needs  holders, kind
--        token  of the readers, if there are no holders yet
--        name   the owner value of the holder
--        finish, weight, most  its expiry in ms, its permits, and its limit
-- sets   holders

if not holders then
  local text_head = kind == 's' and '~s@' .. token or '~p'
  holders = {kind = kind, head = text_head, texts = {}, count = 0, used = 0, smallest = 9e15, first = 9e15, last = 0, is_new = true}
end
holders.is_changed = true
local text = finish .. ' ' .. weight .. ' ' .. most .. ' ' .. name
-- @include count-holder
holders.has_grown = true
