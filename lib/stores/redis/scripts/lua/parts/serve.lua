-- Passes `lock` to the first in its `queue` whose process is there, or to several that fit together; if nobody holds it then, it is
-- deleted. Nothing is written or told yet of those who hold it together: see settle.lua.
--
-- needs  lock, fence, queue, us, minted
--        crowd   those who hold it and stay, see read-crowd.lua; nil if it is given back
--        asking  the `entry` of the asker itself, and its end in ms as `finish`, if it may be served; else nil
--        notices an empty list
-- sets   crowd, notices  of those who were granted it: ticket, channel, is_sharded
--        is_blocked  whether a place does not fit, and all behind it wait
--        asking.is_granted, asking.problem
--
-- An entry names its kind, the channel of its process, and its ticket. A lock that is granted has the ticket as its owner,
-- until it is confirmed or GRANT_TTL_MS are over.
--   g  is granted the lock, with as many tokens as stand behind the ~ of its ticket. The message names the first and the last
--      of them, and the number of the first place that is left, or the time: nobody who waits elsewhere came earlier
--   s  shares the lock with others of its kind, who all have one token
--   p  has permits, `p<permits>/<limit>`, beside others whose permits are within the smallest limit of all of them
--   w  is woken, and the lock is deleted: no node of a Redlock can grant alone
-- What is none of these, or has flags behind the letter, is of a version to come: it is passed over, and keeps its place.
-- Behind MOST_UNKNOWN of them nobody is looked for, as Redis serves nobody else meanwhile: the lock is free, and whoever
-- waits finds it by its next check.
--
-- The first place blocks all behind it until it fits, whatever its kind, unless its process is silent or gone.
--
-- The signs of the processes stand in the same set, see take-place.lua. A process is silent if another has given a sign
-- more than SILENT_US after its last one: each asks every second, so it is dead or paused, and the next is served. Signs are
-- compared with each other and not with the time, so a pause of the server makes nobody silent. A sign from the future was
-- given before the clock was set back: it counts as one of now.
--
-- A process that listens, and does not hear its message, is gone, so the next is served. Its listeners are counted before
-- it is granted the lock: replicas pass messages on to processes that are not counted here, and a waiter that is passed over
-- must not begin. Where they may not be counted the message has 0 for its tokens, so the waiter confirms the lock before it
-- begins. Where no token can be minted it has none either: the lock is free, the waiter asks for it, and learns what is
-- wrong with the counter. A process that has said that it does not listen is granted the lock in any case.
-- One that can hear nothing is sent no message: it finds the lock when it asks, as it does when it begins to listen.
-- Where no message may be published nobody is granted the lock alone, which would stand in vain. Beside others it is granted
-- all the same: whoever is not told of it finds it by its next check.
--
-- In a Cluster, whose `fence` ends in the tag of its slot, a process that listens does so to the channel of that slot. If the
-- slot has moved meanwhile nobody hears it here.

local GRANT_TTL_MS = '2000'
local SILENT_US = 2000000
local MOST_UNKNOWN = 1000
local PAGE = 100
-- A page of the places behind those that were passed over. Numbers cost Redis more than texts, and most queues are empty.
local places = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '2')
local at, is_full = 1, #places == 2
local passed_over = 0
local latest -- the time of the latest sign, once a process may be silent
while true do
  if is_full and not places[at + 1] then -- whether there is another one is to be known of each
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
  if next_entry and not kind and passed_over < MOST_UNKNOWN then
    passed_over = passed_over + 1
  elseif not kind then
    if not crowd then redis.call('DEL', lock) end
    break
  else
    -- @include fits
    local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
    local heard_at, deaf_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
    local sign_at = math.max(heard_at, -(tonumber(signs[2]) or 0), deaf_at)
    -- @include ask-time
    if not latest and us - sign_at > SILENT_US then
      latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
    end
    local is_silent = latest and latest - sign_at > SILENT_US
    local is_own = asking and next_entry == asking.entry
    local is_blind = kind ~= 'w' and sign_at > heard_at
    local slot_tag = kind ~= 'w' and not is_blind and string.match(fence, '{%w+}$')
    if slot_tag then channel = channel .. ':' .. slot_tag end
    local listeners
    if is_silent then
      listeners = 0
    elseif is_own then
      listeners = 1
    elseif kind ~= 'w' and not is_blind then
      listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
    end
    if not fits and listeners ~= 0 then
      is_blocked = true
      break
    end
    local is_last = not places[at] and passed_over == 0 -- all signs leave with it
    local left_queue = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
    if left_queue ~= 1 then
      if not crowd then redis.call('DEL', lock) end
      break
    end
    local turns
    if kind == 'g' then
      local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
      if own_ticket then ticket, turns = own_ticket, own_turns end
    end
    local message = ticket
    local is_alone = kind == 'g' or kind == 'w' -- whoever is served after this one holds it alone, or nobody does
    if kind == 'w' then
      redis.call('DEL', lock)
    elseif listeners ~= 0 then
      local first_token, last_token, mint_problem
      if kind == 'g' or (kind == 's' and not crowd) then
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
        if is_blind or listeners then
          local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
          tokens = first_token .. ' ' .. last_token .. ' ' .. bound
        end
        message = ticket .. ' ' .. tokens .. ' ' .. lock
      else
        if not is_blind and not listeners then -- they may not be counted
          local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, ticket .. ' 0 0 0 ' .. lock)
          if type(heard) ~= 'number' or heard == 0 then listeners = 0 end
        elseif not is_own and not (is_blind and deaf_at == sign_at) then
          notices[#notices + 1] = {ticket = ticket, channel = channel, is_sharded = slot_tag and true}
        end
        if listeners ~= 0 then
          local name, token = ticket, first_token
          local finish = is_own and asking.finish or string.format('%.0f', math.floor(us / 1000) + GRANT_TTL_MS)
          -- @include join-crowd
          if is_own then asking.is_granted = true end
        end
      end
    end
    if is_alone and listeners ~= 0 then
      if is_blind and deaf_at == sign_at then break end
      local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
      if type(heard) == 'number' and (is_blind or heard > 0) then break end
    end
  end
end
