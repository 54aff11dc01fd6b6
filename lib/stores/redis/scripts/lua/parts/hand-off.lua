-- Passes `lock`, which was given back, or has room, to the first in its queue, see serve.lua, or deletes it.
--
-- needs  lock, fence, queue, us, minted
--        crowd   those who hold it and stay, see read-crowd.lua, or nil
--        asking  nil
-- sets   crowd

local notices, is_blocked = {}, false
-- @include serve
-- @include settle
