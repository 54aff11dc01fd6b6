-- Hands `lock` over to the first place in its `queue` whose process is alive, or to several places that fit together. If nobody holds
-- the lock afterwards, the script deletes it. Joint holders are neither written nor notified here: see settle.lua.
--
-- needs  lock, fence, queue, us, minted, is_blocked
--        holders  the remaining holders, see read-holders.lua, or nil if the lock was released
--        asking   a table with `entry` and `finish`, the place of the caller and its expiry in ms, if it may be served, or nil
--        notices  an empty list
-- sets   us, minted, holders
--        notices     the places that were added to the holders: ticket, channel, is_sharded
--        is_blocked  whether a place does not fit, so that all places behind it wait
--        asking.is_granted, asking.problem
--
-- An entry contains its kind, the channel of its process, and its ticket. A lock that was handed over has the ticket as its owner
-- until the waiter confirms it, or for GRANT_TTL_MS.
--   g  gets the lock alone, with as many tokens as the number after the ~ of its ticket. The message contains the first and the last
--      token, and a bound: the number of the first remaining place, or the time. No other waiter arrived earlier
--   s  shares the lock with the other readers; all have the same token
--   p  gets permits, `p<permits>/<limit>`, if the sum of all permits stays within the smallest limit of the holders
--   w  is woken up, and the lock is deleted, because no node of a Redlock can grant alone
-- Any other entry comes from a later version: it is skipped and keeps its place. After MAX_UNKNOWN such entries the search ends, since
-- Redis serves nobody else meanwhile. The lock is free then, and the waiters find it with their next poll.
--
-- The first place blocks all places behind it until it fits, whatever its kind, unless its process is silent or gone.
--
-- The set also contains the signs of the processes, see take-place.lua. A process is silent if another process gave a sign more than
-- SILENT_US after its last one. Each process polls once a second, so a silent one is dead or paused, and the next place is served. The
-- script compares signs with each other and not with the time, so a pause of the server makes nobody silent. A sign from the future
-- was given before the clock was set back, and counts as current.
--
-- A process that listens but does not receive its message is gone, so the next place is served. The script counts the listeners before
-- it grants the lock. A replica can deliver messages to processes that this server does not count, and a skipped waiter must not begin.
-- If the user may not count listeners, the message has 0 as its tokens, and the waiter confirms the lock before it begins. The same
-- holds if no token can be minted: the lock is free then, and the waiter learns of the problem when it asks. A process whose latest
-- sign is `u` or `d` is granted the lock anyway. After a `d` it gets no message, and finds the lock with its next poll.
-- If no message may be published, no place gets the lock alone, since it would be unused for the whole grant. Joint holders are added
-- anyway, and find the lock with their next poll.
--
-- In a Cluster, where `fence` ends in the tag of its slot, a process listens to the channel of that slot. If the slot has moved,
-- nobody listens here.

local GRANT_TTL_MS = '2000'
local SILENT_US = 2000000
local MAX_UNKNOWN = 1000
local PAGE = 100
-- The next places after the skipped ones. Two are enough for most queues. Redis parses texts faster than numbers.
local places = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '2')
local at, is_full = 1, #places == 2
local passed_over = 0
local latest -- the time of the latest sign, read only when a process may be silent
while true do
  if is_full and not places[at + 1] then -- the script must know whether another place follows
    places = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', passed_over, PAGE)
    at, is_full = 1, #places == PAGE
  end
  local next_entry = places[at]
  at = at + 1
  local kind, channel, ticket, weight, most
  if next_entry then
    kind, channel, ticket = string.match(next_entry, '^([gws]) (%S+) (.+)$')
    weight, most = '1', '0'
    if not kind then
      weight, most, channel, ticket = string.match(next_entry, '^p(%d+)/(%d+) (%S+) (.+)$')
      if weight and tonumber(weight) > 0 and tonumber(weight) <= tonumber(most) then kind = 'p' end
    end
    if (kind == 's' or kind == 'p') and string.find(ticket, '%s') then kind = nil end
  end
  if next_entry and not kind and passed_over < MAX_UNKNOWN then
    passed_over = passed_over + 1
  elseif not kind then
    if not holders then redis.call('DEL', lock) end
    break
  else
    -- @include fits
    local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
    local listening_at, not_listening_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
    local sign_at = math.max(listening_at, -(tonumber(signs[2]) or 0), not_listening_at)
    -- @include ask-time
    if not latest and us - sign_at > SILENT_US then
      latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
    end
    local is_silent = latest and latest - sign_at > SILENT_US
    local is_own = asking and next_entry == asking.entry
    local is_unverified = kind ~= 'w' and sign_at > listening_at
    local slot_tag = kind ~= 'w' and not is_unverified and string.match(fence, '{%w+}$')
    if slot_tag then channel = channel .. ':' .. slot_tag end
    -- 0: the process is silent or gone. nil: not counted, as its sign or the rights of the user do not allow that
    local listeners
    if is_silent then
      listeners = 0
    elseif is_own then
      listeners = 1
    elseif kind ~= 'w' and not is_unverified then
      listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
    end
    if not fits and listeners ~= 0 then
      is_blocked = true
      break
    end
    local is_last = not places[at] and passed_over == 0 -- the signs are deleted with the last place
    local left_queue = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
    if left_queue ~= 1 then
      if not holders then redis.call('DEL', lock) end
      break
    end
    local turns
    if kind == 'g' then
      local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
      if own_ticket then ticket, turns = own_ticket, own_turns end
    end
    local message = ticket
    local is_alone = kind == 'g' or kind == 'w' -- the search ends here: nobody can join this holder
    if kind == 'w' then
      redis.call('DEL', lock)
    elseif listeners ~= 0 then
      local first_token, last_token, mint_problem
      if kind == 'g' or (kind == 's' and not holders) then
        local count = tonumber(turns) or 1
        -- @include mint
        first_token, last_token, mint_problem = token, final, problem
      end
      if mint_problem or (kind == 'g' and redis.pcall('SET', lock, ticket .. '@' .. last_token .. '+', 'PX', GRANT_TTL_MS).err) then
        redis.call('DEL', lock)
        is_alone = true
        if is_own then
          asking.problem = mint_problem
          break
        end
      elseif kind == 'g' then
        local tokens = '0 0 0'
        if is_unverified or listeners then
          local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
          tokens = first_token .. ' ' .. last_token .. ' ' .. bound
        end
        message = ticket .. ' ' .. tokens .. ' ' .. lock
      else
        if not is_unverified and not listeners then -- the user may not count listeners
          local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, ticket .. ' 0 0 0 ' .. lock)
          if type(heard) ~= 'number' or heard == 0 then listeners = 0 end
        elseif not is_own and not (is_unverified and not_listening_at == sign_at) then
          notices[#notices + 1] = {ticket = ticket, channel = channel, is_sharded = slot_tag and true}
        end
        if listeners ~= 0 then
          local name, token = ticket, first_token
          local finish = is_own and asking.finish or string.format('%.0f', math.floor(us / 1000) + GRANT_TTL_MS)
          -- @include add-holder
          if is_own then asking.is_granted = true end
        end
      end
    end
    if is_alone and listeners ~= 0 then
      if is_unverified and not_listening_at == sign_at then break end
      local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
      if type(heard) == 'number' and (is_unverified or heard > 0) then break end
    end
  end
end
