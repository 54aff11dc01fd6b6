-- Passes `lock`, which is given back, to the first in its `queue` who hears of it, or deletes it.
--
-- needs  lock, fence, queue, us, minted
--
-- An entry names its kind, the channel of its process, and its ticket. A lock that is granted has the ticket as its owner,
-- until it is confirmed or GRANT_TTL_MS are over.
--   g  is granted the lock if its process listens
--   b  is granted the lock in any case: its process does not listen yet, or listens at another node of a Cluster
--   w  is woken, and the lock is deleted: no node of a Redlock can grant alone
-- What is none of these, or has flags behind the letter, is of a version to come: it is passed over, and keeps its place.
--
-- A process that does not hear its message is gone, so the next is served. Its listeners are counted before it is
-- granted the lock: replicas pass messages on to processes that are not counted here, and a waiter that is passed over
-- must not begin. Where they may not be counted the message has no token, so the waiter confirms the lock before it
-- begins. Where no token can be minted it has none either: the lock is free, the waiter asks for it, and learns what is
-- wrong with the counter.

local GRANT_TTL_MS = '2000'
local passed_over = '0' -- a number costs Redis more, and most queues are empty
while true do
  local next_entry = redis.pcall('ZRANGE', queue, passed_over, passed_over)[1]
  local kind, channel, ticket
  if next_entry then kind, channel, ticket = string.match(next_entry, '^([gbw]) (%S+) (.+)$') end
  if next_entry and not kind then
    passed_over = passed_over + 1
  elseif not next_entry or redis.pcall('ZREM', queue, next_entry) ~= 1 then
    redis.call('DEL', lock)
    break
  else
    local message, listeners = ticket, nil
    if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
    if kind == 'w' then
      redis.call('DEL', lock)
    elseif listeners ~= 0 then
      local count = 1
      -- @include mint
      if problem or redis.pcall('SET', lock, ticket .. '@' .. token .. '+', 'PX', GRANT_TTL_MS).err then
        redis.call('DEL', lock)
      elseif kind == 'b' or listeners then
        message = ticket .. ' ' .. token
      end
    end
    if listeners ~= 0 then
      local heard = redis.pcall('PUBLISH', channel, message)
      if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
    end
  end
end
