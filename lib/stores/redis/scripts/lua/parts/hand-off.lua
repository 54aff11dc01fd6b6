-- Hands `lock` over to the first places in its queue, or deletes it if it is free and nobody waits: see serve.lua.
--
-- needs  lock, fence, queue, us, minted
--        holders  the remaining holders, see read-holders.lua, or nil
--        asking   nil
-- sets   us, minted, holders

local notices, is_blocked = {}, false
-- @include serve
-- @include settle
