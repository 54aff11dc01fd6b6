// Generated from lua/ by generate.mjs (`npm run lua`): do not edit.
import type { Script } from './script.js';

/**
 * Takes a lock that is free, and mints its fencing token. A lock that this owner value holds already counts as taken by
 * this attempt, since the command can run twice: its ttl starts anew, and its token is a new one.
 */
export const ACQUIRE: Script = {
  name: 'acquire',
  order: 3,
  locksPerCall: 50,
  sha: 'f2066576080a608b5f623e9514433806e530a558',
  source: `local us
if #KEYS > 2 then
  local function each(lock, fence, owner, ttl)
    local count = 1
    local free = redis.pcall('SET', lock, owner, 'PX', ttl, 'NX')
    if not free then
      local holder = redis.pcall('GET', lock)
      if type(holder) == 'table' then return {holder.err} end
      if holder ~= owner then return {redis.call('PTTL', lock), holder} end
      redis.call('PEXPIRE', lock, ttl)
    elseif free.err then
      return {free.err}
    end
    local FENCE_TTL_MS = '86400000'
    local token, problem
    if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end
    local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
    if not last then
      token = us
    elseif type(last) == 'table' then
      problem = {last.err}
    else
      local number = tonumber(last)
      if not number then
        redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
        problem = {'ERR fencing counter is not an integer'}
      elseif number < us then
        token = us
      else
        local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
        if set.err then problem = {set.err} else token = number + 1 end
      end
    end
    if problem then
      redis.call('DEL', lock)
      return problem
    end
    return token
  end
  local replies = {}
  for i = 0, #KEYS / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 1], KEYS[2 * i + 2], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local lock, fence = KEYS[1], KEYS[2]
local owner, ttl = ARGV[1], ARGV[2]
local count = 1
local free = redis.pcall('SET', lock, owner, 'PX', ttl, 'NX')
if not free then
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return {holder.err} end
  if holder ~= owner then return {redis.call('PTTL', lock), holder} end
  redis.call('PEXPIRE', lock, ttl)
elseif free.err then
  return {free.err}
end
local FENCE_TTL_MS = '86400000'
local token, problem
if not us then
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
end
local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
if not last then
  token = us
elseif type(last) == 'table' then
  problem = {last.err}
else
  local number = tonumber(last)
  if not number then
    redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
    problem = {'ERR fencing counter is not an integer'}
  elseif number < us then
    token = us
  else
    local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
    if set.err then problem = {set.err} else token = number + 1 end
  end
end
if problem then
  redis.call('DEL', lock)
  return problem
end
return token`,
};

/**
 * Asks a node of a Redlock since when it can be relied on to know all locks that it has granted. The node keeps three
 * things in a key of its own: since when that is, the longest ttl in use, and the run of the server that was asked
 * last. A node that has lost its data has lost these, too.
 */
export const ADMIT: Script = {
  name: 'admit',
  order: 0,
  locksPerCall: 50,
  sha: '9c9100c9b218a42871fde999ac8cbaac080f8ace',
  source: `if #KEYS > 1 then
  local function each(admission, run, uptime, longest)
    local known = redis.pcall('GET', admission) or ''
    if type(known) == 'table' then return {known.err} end
    local since, known_longest, known_run = string.match(known, '^(%d+) (%d+) (.+)$')
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    if not since then
      since = now
    elseif known_run ~= run then
      since = now - uptime * 1000000
    end
    longest = math.max(tonumber(longest), tonumber(known_longest or 0))
    local epoch = string.format('%.0f', since)
    local changed = string.format('%s %.0f %s', epoch, longest, run)
    if changed ~= known then
      local set = redis.pcall('SET', admission, changed)
      if set.err then return {set.err} end
    end
    return {epoch, math.floor((now - since) / 1000), longest}
  end
  local replies = {}
  for i = 0, #KEYS / 1 - 1 do
    replies[i + 1] = each(KEYS[i + 1], ARGV[3 * i + 1], ARGV[3 * i + 2], ARGV[3 * i + 3])
  end
  return replies
end
local admission = KEYS[1]
local run, uptime, longest = ARGV[1], ARGV[2], ARGV[3]
local known = redis.pcall('GET', admission) or ''
if type(known) == 'table' then return {known.err} end
local since, known_longest, known_run = string.match(known, '^(%d+) (%d+) (.+)$')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not since then
  since = now
elseif known_run ~= run then
  since = now - uptime * 1000000
end
longest = math.max(tonumber(longest), tonumber(known_longest or 0))
local epoch = string.format('%.0f', since)
local changed = string.format('%s %.0f %s', epoch, longest, run)
if changed ~= known then
  local set = redis.pcall('SET', admission, changed)
  if set.err then return {set.err} end
end
return {epoch, math.floor((now - since) / 1000), longest}`,
};

/**
 * The attempt of a waiter: takes the lock if it is free or was handed over to this owner, and mints its tokens;
 * otherwise takes a place in the queue, unless the waiter has one.
 */
export const CONTEND: Script = {
  name: 'contend',
  order: 3,
  locksPerCall: 50,
  sha: 'ad9df488178e21a8eb993561c839e694992e1e49',
  source: `local us
if #KEYS > 3 then
  local function each(lock, fence, queue, owner, ttl, count, entry, number, fair)
    local QUEUE_TTL_MS = '10000'
    local holder = redis.pcall('GET', lock)
    if type(holder) == 'table' then return {holder.err} end
    local was_gone
    if holder ~= owner and entry ~= '' and (holder or fair == '1') then
      local before = number
      number = tonumber(before) or 0
      if number == 0 then
        local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
        if not us then
          local time = redis.call('TIME')
          us = time[1] * 1000000 + time[2]
        end
        number = math.max(us, (tonumber(last) or 0) + 1)
      end
      was_gone = redis.pcall('ZADD', queue, 'NX', number, entry) == 1 and before ~= '' and 1 or 0
      redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
    end
    if not holder and fair == '1' then
      local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
      if first and first ~= entry then
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
            if kind == 'w' then
              redis.call('DEL', lock)
            elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
              redis.call('DEL', lock)
              break
            else
              if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
              if kind == 'b' or (listeners or 0) > 0 then
                local count = 1
                local FENCE_TTL_MS = '86400000'
                local token, problem
                if not us then
                  local time = redis.call('TIME')
                  us = time[1] * 1000000 + time[2]
                end
                local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
                if not last then
                  token = us
                elseif type(last) == 'table' then
                  problem = {last.err}
                else
                  local number = tonumber(last)
                  if not number then
                    redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
                    problem = {'ERR fencing counter is not an integer'}
                  elseif number < us then
                    token = us
                  else
                    local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
                    if set.err then problem = {set.err} else token = number + 1 end
                  end
                end
                if token then message = string.format('%s %.0f', ticket, token) end
              end
            end
            if listeners ~= 0 then
              local heard = redis.pcall('PUBLISH', channel, message)
              if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
            end
          end
        end
        holder = redis.call('GET', lock)
      end
    end
    if holder and holder ~= owner then
      if entry == '' then return {redis.call('PTTL', lock), holder} end
      return {redis.call('PTTL', lock), holder, number, was_gone}
    end
    local taken = redis.pcall('SET', lock, owner, 'PX', ttl)
    if taken.err then return {taken.err} end
    if entry ~= '' then redis.pcall('ZREM', queue, entry) end
    local FENCE_TTL_MS = '86400000'
    local token, problem
    if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end
    local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
    if not last then
      token = us
    elseif type(last) == 'table' then
      problem = {last.err}
    else
      local number = tonumber(last)
      if not number then
        redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
        problem = {'ERR fencing counter is not an integer'}
      elseif number < us then
        token = us
      else
        local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
        if set.err then problem = {set.err} else token = number + 1 end
      end
    end
    if problem then
      redis.call('DEL', lock)
      return problem
    end
    return token
  end
  local replies = {}
  for i = 0, #KEYS / 3 - 1 do
    replies[i + 1] = each(KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3], ARGV[6 * i + 1], ARGV[6 * i + 2], ARGV[6 * i + 3], ARGV[6 * i + 4], ARGV[6 * i + 5], ARGV[6 * i + 6])
  end
  return replies
end
local lock, fence, queue = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl, count = ARGV[1], ARGV[2], ARGV[3]
local entry, number, fair = ARGV[4], ARGV[5], ARGV[6]
local QUEUE_TTL_MS = '10000'
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return {holder.err} end
local was_gone
if holder ~= owner and entry ~= '' and (holder or fair == '1') then
  local before = number
  number = tonumber(before) or 0
  if number == 0 then
    local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end
    number = math.max(us, (tonumber(last) or 0) + 1)
  end
  was_gone = redis.pcall('ZADD', queue, 'NX', number, entry) == 1 and before ~= '' and 1 or 0
  redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
end
if not holder and fair == '1' then
  local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
  if first and first ~= entry then
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
        if kind == 'w' then
          redis.call('DEL', lock)
        elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
          redis.call('DEL', lock)
          break
        else
          if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
          if kind == 'b' or (listeners or 0) > 0 then
            local count = 1
            local FENCE_TTL_MS = '86400000'
            local token, problem
            if not us then
              local time = redis.call('TIME')
              us = time[1] * 1000000 + time[2]
            end
            local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
            if not last then
              token = us
            elseif type(last) == 'table' then
              problem = {last.err}
            else
              local number = tonumber(last)
              if not number then
                redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
                problem = {'ERR fencing counter is not an integer'}
              elseif number < us then
                token = us
              else
                local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
                if set.err then problem = {set.err} else token = number + 1 end
              end
            end
            if token then message = string.format('%s %.0f', ticket, token) end
          end
        end
        if listeners ~= 0 then
          local heard = redis.pcall('PUBLISH', channel, message)
          if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
        end
      end
    end
    holder = redis.call('GET', lock)
  end
end
if holder and holder ~= owner then
  if entry == '' then return {redis.call('PTTL', lock), holder} end
  return {redis.call('PTTL', lock), holder, number, was_gone}
end
local taken = redis.pcall('SET', lock, owner, 'PX', ttl)
if taken.err then return {taken.err} end
if entry ~= '' then redis.pcall('ZREM', queue, entry) end
local FENCE_TTL_MS = '86400000'
local token, problem
if not us then
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
end
local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
if not last then
  token = us
elseif type(last) == 'table' then
  problem = {last.err}
else
  local number = tonumber(last)
  if not number then
    redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
    problem = {'ERR fencing counter is not an integer'}
  elseif number < us then
    token = us
  else
    local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
    if set.err then problem = {set.err} else token = number + 1 end
  end
end
if problem then
  redis.call('DEL', lock)
  return problem
end
return token`,
};

/**
 * Starts the ttl of a lock anew that its owner still holds.
 */
export const EXTEND: Script = {
  name: 'extend',
  order: 2,
  locksPerCall: 100,
  sha: '1f7d95ee13f6348d21c3855ea756f4ed4c5edb56',
  source: `if #KEYS > 1 then
  local function each(lock, owner, ttl)
    local holder = redis.pcall('GET', lock)
    if holder == owner then return redis.call('PEXPIRE', lock, ttl) end
    if not holder then return 0 end
    if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
    return -1
  end
  local replies = {}
  for i = 0, #KEYS / 1 - 1 do
    replies[i + 1] = each(KEYS[i + 1], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local lock = KEYS[1]
local owner, ttl = ARGV[1], ARGV[2]
local holder = redis.pcall('GET', lock)
if holder == owner then return redis.call('PEXPIRE', lock, ttl) end
if not holder then return 0 end
if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
return -1`,
};

/**
 * Takes a lock away from whoever holds it: it goes to the first in its queue, or to nobody. The process of the holder
 * gets a message, if it listens.
 */
export const FORCE_RELEASE: Script = {
  name: 'force-release',
  order: 1,
  locksPerCall: 50,
  sha: '95e910d696bbf0d36fd5986175f2bfd4c1f9adc3',
  source: `local us
if #KEYS > 3 then
  local function each(lock, fence, queue, key, inbox)
    local holder = redis.pcall('GET', lock)
    if not holder then return 0 end
    if type(holder) == 'table' then
      if not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
      holder = ''
    else
      local TAKEN = 'taken'
      local process = string.match(holder, '^(.+)/%w+$')
      if process then redis.pcall('PUBLISH', inbox .. process, holder .. ' ' .. TAKEN .. ' ' .. key) end
    end
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
        if kind == 'w' then
          redis.call('DEL', lock)
        elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
          redis.call('DEL', lock)
          break
        else
          if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
          if kind == 'b' or (listeners or 0) > 0 then
            local count = 1
            local FENCE_TTL_MS = '86400000'
            local token, problem
            if not us then
              local time = redis.call('TIME')
              us = time[1] * 1000000 + time[2]
            end
            local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
            if not last then
              token = us
            elseif type(last) == 'table' then
              problem = {last.err}
            else
              local number = tonumber(last)
              if not number then
                redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
                problem = {'ERR fencing counter is not an integer'}
              elseif number < us then
                token = us
              else
                local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
                if set.err then problem = {set.err} else token = number + 1 end
              end
            end
            if token then message = string.format('%s %.0f', ticket, token) end
          end
        end
        if listeners ~= 0 then
          local heard = redis.pcall('PUBLISH', channel, message)
          if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
        end
      end
    end
    return {1, holder}
  end
  local replies = {}
  for i = 0, #KEYS / 3 - 1 do
    replies[i + 1] = each(KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local lock, fence, queue = KEYS[1], KEYS[2], KEYS[3]
local key, inbox = ARGV[1], ARGV[2]
local holder = redis.pcall('GET', lock)
if not holder then return 0 end
if type(holder) == 'table' then
  if not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
  holder = ''
else
  local TAKEN = 'taken'
  local process = string.match(holder, '^(.+)/%w+$')
  if process then redis.pcall('PUBLISH', inbox .. process, holder .. ' ' .. TAKEN .. ' ' .. key) end
end
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
    if kind == 'w' then
      redis.call('DEL', lock)
    elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
      redis.call('DEL', lock)
      break
    else
      if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
      if kind == 'b' or (listeners or 0) > 0 then
        local count = 1
        local FENCE_TTL_MS = '86400000'
        local token, problem
        if not us then
          local time = redis.call('TIME')
          us = time[1] * 1000000 + time[2]
        end
        local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
        if not last then
          token = us
        elseif type(last) == 'table' then
          problem = {last.err}
        else
          local number = tonumber(last)
          if not number then
            redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
            problem = {'ERR fencing counter is not an integer'}
          elseif number < us then
            token = us
          else
            local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
            if set.err then problem = {set.err} else token = number + 1 end
          end
        end
        if token then message = string.format('%s %.0f', ticket, token) end
      end
    end
    if listeners ~= 0 then
      local heard = redis.pcall('PUBLISH', channel, message)
      if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
    end
  end
end
return {1, holder}`,
};

/**
 * Reads a lock. The ttl of the fencing counter starts at the acquisition, so the part of it that has passed says for
 * how long the lock has been held, by no clock but the server's.
 */
export const INSPECT: Script = {
  name: 'inspect',
  order: 4,
  locksPerCall: 50,
  sha: '0025b539830440cedfd08c10836e828b8fe6f061',
  source: `if #KEYS > 2 then
  local function each(lock, fence)
    local holder = redis.pcall('GET', lock)
    if not holder then return 0 end
    if type(holder) == 'table' then return {holder.err} end
    local token = redis.pcall('GET', fence)
    if not tonumber(token) then token = '' end
    return {redis.call('PTTL', lock), holder, token, redis.call('PTTL', fence)}
  end
  local replies = {}
  for i = 0, #KEYS / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 1], KEYS[2 * i + 2])
  end
  return replies
end
local lock, fence = KEYS[1], KEYS[2]
local holder = redis.pcall('GET', lock)
if not holder then return 0 end
if type(holder) == 'table' then return {holder.err} end
local token = redis.pcall('GET', fence)
if not tonumber(token) then token = '' end
return {redis.call('PTTL', lock), holder, token, redis.call('PTTL', fence)}`,
};

/**
 * Raises the fencing counter of a lock that its owner still holds to a token, and never lowers it: the write-back by
 * which a Redlock makes a token known to a majority before it is issued.
 */
export const RAISE_FENCE: Script = {
  name: 'raise-fence',
  order: 2,
  locksPerCall: 50,
  sha: '6216150029d764e998ab0e114d1334f0c6e7fbdd',
  source: `local FENCE_TTL_MS = '86400000'
if #KEYS > 2 then
  local function each(lock, fence, owner, token)
    local holder = redis.pcall('GET', lock)
    if type(holder) == 'table' then return {holder.err} end
    if holder ~= owner then return 0 end
    local counter = redis.pcall('GET', fence) or 0
    local last = tonumber(counter)
    if not last then return {type(counter) == 'table' and counter.err or 'ERR fencing counter is not a number'} end
    if last < tonumber(token) then
      local set = redis.pcall('SET', fence, token, 'PX', FENCE_TTL_MS)
      if set.err then return {set.err} end
    end
    return 1
  end
  local replies = {}
  for i = 0, #KEYS / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 1], KEYS[2 * i + 2], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local lock, fence = KEYS[1], KEYS[2]
local owner, token = ARGV[1], ARGV[2]
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return {holder.err} end
if holder ~= owner then return 0 end
local counter = redis.pcall('GET', fence) or 0
local last = tonumber(counter)
if not last then return {type(counter) == 'table' and counter.err or 'ERR fencing counter is not a number'} end
if last < tonumber(token) then
  local set = redis.pcall('SET', fence, token, 'PX', FENCE_TTL_MS)
  if set.err then return {set.err} end
end
return 1`,
};

/**
 * Gives back a lock that its owner still holds: to the first in its queue, or to nobody.
 */
export const RELEASE: Script = {
  name: 'release',
  order: 1,
  locksPerCall: 50,
  sha: '8ea08aa75f883e51c74c917367df68e8a9c91d64',
  source: `local us
if #KEYS > 3 then
  local function each(lock, fence, queue, owner)
    local holder = redis.pcall('GET', lock)
    if holder == owner then
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
          if kind == 'w' then
            redis.call('DEL', lock)
          elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
            redis.call('DEL', lock)
            break
          else
            if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
            if kind == 'b' or (listeners or 0) > 0 then
              local count = 1
              local FENCE_TTL_MS = '86400000'
              local token, problem
              if not us then
                local time = redis.call('TIME')
                us = time[1] * 1000000 + time[2]
              end
              local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
              if not last then
                token = us
              elseif type(last) == 'table' then
                problem = {last.err}
              else
                local number = tonumber(last)
                if not number then
                  redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
                  problem = {'ERR fencing counter is not an integer'}
                elseif number < us then
                  token = us
                else
                  local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
                  if set.err then problem = {set.err} else token = number + 1 end
                end
              end
              if token then message = string.format('%s %.0f', ticket, token) end
            end
          end
          if listeners ~= 0 then
            local heard = redis.pcall('PUBLISH', channel, message)
            if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
          end
        end
      end
      return 1
    end
    if not holder then return 0 end
    if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
    return -1
  end
  local replies = {}
  for i = 0, #KEYS / 3 - 1 do
    replies[i + 1] = each(KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3], ARGV[i + 1])
  end
  return replies
end
local lock, fence, queue = KEYS[1], KEYS[2], KEYS[3]
local owner = ARGV[1]
local holder = redis.pcall('GET', lock)
if holder == owner then
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
      if kind == 'w' then
        redis.call('DEL', lock)
      elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
        redis.call('DEL', lock)
        break
      else
        if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
        if kind == 'b' or (listeners or 0) > 0 then
          local count = 1
          local FENCE_TTL_MS = '86400000'
          local token, problem
          if not us then
            local time = redis.call('TIME')
            us = time[1] * 1000000 + time[2]
          end
          local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
          if not last then
            token = us
          elseif type(last) == 'table' then
            problem = {last.err}
          else
            local number = tonumber(last)
            if not number then
              redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
              problem = {'ERR fencing counter is not an integer'}
            elseif number < us then
              token = us
            else
              local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
              if set.err then problem = {set.err} else token = number + 1 end
            end
          end
          if token then message = string.format('%s %.0f', ticket, token) end
        end
      end
      if listeners ~= 0 then
        local heard = redis.pcall('PUBLISH', channel, message)
        if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
      end
    end
  end
  return 1
end
if not holder then return 0 end
if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
return -1`,
};

/**
 * Extends a lock as extend.lua does, except that an absent one is put back: a node of a Redlock that restarted would
 * stay without it otherwise. That never counts as held, only as mended.
 */
export const RESTORE: Script = {
  name: 'restore',
  order: 2,
  locksPerCall: 100,
  sha: 'd8557c119b92d43305fe01516c0e776017039840',
  source: `if #KEYS > 1 then
  local function each(lock, owner, ttl)
    local holder = redis.pcall('GET', lock)
    if holder == owner then return redis.call('PEXPIRE', lock, ttl) end
    if not holder then
      local set = redis.pcall('SET', lock, owner, 'PX', ttl)
      return set.err and {set.err} or 2
    end
    if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
    return -1
  end
  local replies = {}
  for i = 0, #KEYS / 1 - 1 do
    replies[i + 1] = each(KEYS[i + 1], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local lock = KEYS[1]
local owner, ttl = ARGV[1], ARGV[2]
local holder = redis.pcall('GET', lock)
if holder == owner then return redis.call('PEXPIRE', lock, ttl) end
if not holder then
  local set = redis.pcall('SET', lock, owner, 'PX', ttl)
  return set.err and {set.err} or 2
end
if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
return -1`,
};

/**
 * Takes a lock that is free on one node of a Redlock, and counts its fencing counter on. Like acquire.lua otherwise.
 */
export const VOTE: Script = {
  name: 'vote',
  order: 3,
  locksPerCall: 50,
  sha: '1fdfc50abc60d5100a504ac17db13e20bbcd3ce0',
  source: `local us
if #KEYS > 3 then
  local function each(lock, fence, admission, owner, ttl, epoch, votes_from)
    local free = redis.pcall('SET', lock, owner, 'PX', ttl, 'NX')
    if not free then
      local holder = redis.pcall('GET', lock)
      if type(holder) == 'table' then return {holder.err} end
      if holder ~= owner then return {redis.call('PTTL', lock), holder} end
      redis.call('PEXPIRE', lock, ttl)
    elseif free.err then
      return {free.err}
    end
    local FENCE_TTL_MS = '86400000'
    local WIPED = 'wiped'
    local problem
    local token = redis.pcall('INCRBY', fence, '1')
    if type(token) == 'table' then
      problem = {'fencing counter: ' .. token.err}
    elseif token >= math.max(1e15, tonumber(votes_from) or 0) then
      redis.call('PEXPIRE', fence, FENCE_TTL_MS)
    elseif epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
      if token == 1 then redis.call('DEL', fence) end
      problem = {WIPED, epoch}
    else
      if not us then
        local time = redis.call('TIME')
        us = time[1] * 1000000 + time[2]
      end
      if us > token then token = us end
      local set = redis.pcall('SET', fence, token, 'PX', FENCE_TTL_MS)
      if set.err then problem = {set.err} end
    end
    if problem then
      redis.call('DEL', lock)
      return problem
    end
    return token
  end
  local replies = {}
  for i = 0, #KEYS / 3 - 1 do
    replies[i + 1] = each(KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3], ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3], ARGV[4 * i + 4])
  end
  return replies
end
local lock, fence, admission = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl = ARGV[1], ARGV[2]
local epoch, votes_from = ARGV[3], ARGV[4]
local free = redis.pcall('SET', lock, owner, 'PX', ttl, 'NX')
if not free then
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return {holder.err} end
  if holder ~= owner then return {redis.call('PTTL', lock), holder} end
  redis.call('PEXPIRE', lock, ttl)
elseif free.err then
  return {free.err}
end
local FENCE_TTL_MS = '86400000'
local WIPED = 'wiped'
local problem
local token = redis.pcall('INCRBY', fence, '1')
if type(token) == 'table' then
  problem = {'fencing counter: ' .. token.err}
elseif token >= math.max(1e15, tonumber(votes_from) or 0) then
  redis.call('PEXPIRE', fence, FENCE_TTL_MS)
elseif epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
  if token == 1 then redis.call('DEL', fence) end
  problem = {WIPED, epoch}
else
  if not us then
    local time = redis.call('TIME')
    us = time[1] * 1000000 + time[2]
  end
  if us > token then token = us end
  local set = redis.pcall('SET', fence, token, 'PX', FENCE_TTL_MS)
  if set.err then problem = {set.err} end
end
if problem then
  redis.call('DEL', lock)
  return problem
end
return token`,
};

/**
 * The attempt of a waiter on one node of a Redlock. Like contend.lua, except that it counts the fencing counter on, by
 * one.
 */
export const VOTE_OR_QUEUE: Script = {
  name: 'vote-or-queue',
  order: 3,
  locksPerCall: 50,
  sha: 'b608dea3a9e4fe8223d32a49f20c605d4caf79fe',
  source: `local us
if #KEYS > 4 then
  local function each(lock, fence, queue, admission, owner, ttl, count, entry, number, fair, epoch, votes_from)
    local QUEUE_TTL_MS = '10000'
    local holder = redis.pcall('GET', lock)
    if type(holder) == 'table' then return {holder.err} end
    local was_gone
    if holder ~= owner and entry ~= '' and (holder or fair == '1') then
      local before = number
      number = tonumber(before) or 0
      if number == 0 then
        local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
        if not us then
          local time = redis.call('TIME')
          us = time[1] * 1000000 + time[2]
        end
        number = math.max(us, (tonumber(last) or 0) + 1)
      end
      was_gone = redis.pcall('ZADD', queue, 'NX', number, entry) == 1 and before ~= '' and 1 or 0
      redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
    end
    if not holder and fair == '1' then
      local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
      if first and first ~= entry then
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
            if kind == 'w' then
              redis.call('DEL', lock)
            elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
              redis.call('DEL', lock)
              break
            else
              if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
              if kind == 'b' or (listeners or 0) > 0 then
                local count = 1
                local FENCE_TTL_MS = '86400000'
                local token, problem
                if not us then
                  local time = redis.call('TIME')
                  us = time[1] * 1000000 + time[2]
                end
                local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
                if not last then
                  token = us
                elseif type(last) == 'table' then
                  problem = {last.err}
                else
                  local number = tonumber(last)
                  if not number then
                    redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
                    problem = {'ERR fencing counter is not an integer'}
                  elseif number < us then
                    token = us
                  else
                    local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
                    if set.err then problem = {set.err} else token = number + 1 end
                  end
                end
                if token then message = string.format('%s %.0f', ticket, token) end
              end
            end
            if listeners ~= 0 then
              local heard = redis.pcall('PUBLISH', channel, message)
              if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
            end
          end
        end
        holder = redis.call('GET', lock)
      end
    end
    if holder and holder ~= owner then
      if entry == '' then return {redis.call('PTTL', lock), holder} end
      return {redis.call('PTTL', lock), holder, number, was_gone}
    end
    local taken = redis.pcall('SET', lock, owner, 'PX', ttl)
    if taken.err then return {taken.err} end
    if entry ~= '' then redis.pcall('ZREM', queue, entry) end
    local FENCE_TTL_MS = '86400000'
    local WIPED = 'wiped'
    local problem
    local token = redis.pcall('INCRBY', fence, '1')
    if type(token) == 'table' then
      problem = {'fencing counter: ' .. token.err}
    elseif token >= math.max(1e15, tonumber(votes_from) or 0) then
      redis.call('PEXPIRE', fence, FENCE_TTL_MS)
    elseif epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
      if token == 1 then redis.call('DEL', fence) end
      problem = {WIPED, epoch}
    else
      if not us then
        local time = redis.call('TIME')
        us = time[1] * 1000000 + time[2]
      end
      if us > token then token = us end
      local set = redis.pcall('SET', fence, token, 'PX', FENCE_TTL_MS)
      if set.err then problem = {set.err} end
    end
    if problem then
      redis.call('DEL', lock)
      return problem
    end
    return token
  end
  local replies = {}
  for i = 0, #KEYS / 4 - 1 do
    replies[i + 1] = each(KEYS[4 * i + 1], KEYS[4 * i + 2], KEYS[4 * i + 3], KEYS[4 * i + 4], ARGV[8 * i + 1], ARGV[8 * i + 2], ARGV[8 * i + 3], ARGV[8 * i + 4], ARGV[8 * i + 5], ARGV[8 * i + 6], ARGV[8 * i + 7], ARGV[8 * i + 8])
  end
  return replies
end
local lock, fence, queue, admission = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ttl, count = ARGV[1], ARGV[2], ARGV[3]
local entry, number, fair = ARGV[4], ARGV[5], ARGV[6]
local epoch, votes_from = ARGV[7], ARGV[8]
local QUEUE_TTL_MS = '10000'
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return {holder.err} end
local was_gone
if holder ~= owner and entry ~= '' and (holder or fair == '1') then
  local before = number
  number = tonumber(before) or 0
  if number == 0 then
    local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end
    number = math.max(us, (tonumber(last) or 0) + 1)
  end
  was_gone = redis.pcall('ZADD', queue, 'NX', number, entry) == 1 and before ~= '' and 1 or 0
  redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
end
if not holder and fair == '1' then
  local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
  if first and first ~= entry then
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
        if kind == 'w' then
          redis.call('DEL', lock)
        elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
          redis.call('DEL', lock)
          break
        else
          if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
          if kind == 'b' or (listeners or 0) > 0 then
            local count = 1
            local FENCE_TTL_MS = '86400000'
            local token, problem
            if not us then
              local time = redis.call('TIME')
              us = time[1] * 1000000 + time[2]
            end
            local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
            if not last then
              token = us
            elseif type(last) == 'table' then
              problem = {last.err}
            else
              local number = tonumber(last)
              if not number then
                redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
                problem = {'ERR fencing counter is not an integer'}
              elseif number < us then
                token = us
              else
                local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
                if set.err then problem = {set.err} else token = number + 1 end
              end
            end
            if token then message = string.format('%s %.0f', ticket, token) end
          end
        end
        if listeners ~= 0 then
          local heard = redis.pcall('PUBLISH', channel, message)
          if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
        end
      end
    end
    holder = redis.call('GET', lock)
  end
end
if holder and holder ~= owner then
  if entry == '' then return {redis.call('PTTL', lock), holder} end
  return {redis.call('PTTL', lock), holder, number, was_gone}
end
local taken = redis.pcall('SET', lock, owner, 'PX', ttl)
if taken.err then return {taken.err} end
if entry ~= '' then redis.pcall('ZREM', queue, entry) end
local FENCE_TTL_MS = '86400000'
local WIPED = 'wiped'
local problem
local token = redis.pcall('INCRBY', fence, '1')
if type(token) == 'table' then
  problem = {'fencing counter: ' .. token.err}
elseif token >= math.max(1e15, tonumber(votes_from) or 0) then
  redis.call('PEXPIRE', fence, FENCE_TTL_MS)
elseif epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
  if token == 1 then redis.call('DEL', fence) end
  problem = {WIPED, epoch}
else
  if not us then
    local time = redis.call('TIME')
    us = time[1] * 1000000 + time[2]
  end
  if us > token then token = us end
  local set = redis.pcall('SET', fence, token, 'PX', FENCE_TTL_MS)
  if set.err then problem = {set.err} end
end
if problem then
  redis.call('DEL', lock)
  return problem
end
return token`,
};

/**
 * Gives up a place in the queue of a lock; a lock that was handed over to it in the meantime goes to the next.
 */
export const WITHDRAW: Script = {
  name: 'withdraw',
  order: 1,
  locksPerCall: 50,
  sha: '34b942c8f6859a25b224df7af731d5304cb47270',
  source: `local us
if #KEYS > 3 then
  local function each(lock, fence, queue, owner, entry)
    redis.pcall('ZREM', queue, entry)
    local holder = redis.pcall('GET', lock)
    if holder ~= owner then return type(holder) == 'table' and {holder.err} or 0 end
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
        if kind == 'w' then
          redis.call('DEL', lock)
        elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
          redis.call('DEL', lock)
          break
        else
          if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
          if kind == 'b' or (listeners or 0) > 0 then
            local count = 1
            local FENCE_TTL_MS = '86400000'
            local token, problem
            if not us then
              local time = redis.call('TIME')
              us = time[1] * 1000000 + time[2]
            end
            local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
            if not last then
              token = us
            elseif type(last) == 'table' then
              problem = {last.err}
            else
              local number = tonumber(last)
              if not number then
                redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
                problem = {'ERR fencing counter is not an integer'}
              elseif number < us then
                token = us
              else
                local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
                if set.err then problem = {set.err} else token = number + 1 end
              end
            end
            if token then message = string.format('%s %.0f', ticket, token) end
          end
        end
        if listeners ~= 0 then
          local heard = redis.pcall('PUBLISH', channel, message)
          if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
        end
      end
    end
    return 1
  end
  local replies = {}
  for i = 0, #KEYS / 3 - 1 do
    replies[i + 1] = each(KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local lock, fence, queue = KEYS[1], KEYS[2], KEYS[3]
local owner, entry = ARGV[1], ARGV[2]
redis.pcall('ZREM', queue, entry)
local holder = redis.pcall('GET', lock)
if holder ~= owner then return type(holder) == 'table' and {holder.err} or 0 end
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
    if kind == 'w' then
      redis.call('DEL', lock)
    elseif redis.pcall('SET', lock, ticket, 'PX', GRANT_TTL_MS).err then
      redis.call('DEL', lock)
      break
    else
      if kind == 'g' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
      if kind == 'b' or (listeners or 0) > 0 then
        local count = 1
        local FENCE_TTL_MS = '86400000'
        local token, problem
        if not us then
          local time = redis.call('TIME')
          us = time[1] * 1000000 + time[2]
        end
        local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
        if not last then
          token = us
        elseif type(last) == 'table' then
          problem = {last.err}
        else
          local number = tonumber(last)
          if not number then
            redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
            problem = {'ERR fencing counter is not an integer'}
          elseif number < us then
            token = us
          else
            local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
            if set.err then problem = {set.err} else token = number + 1 end
          end
        end
        if token then message = string.format('%s %.0f', ticket, token) end
      end
    end
    if listeners ~= 0 then
      local heard = redis.pcall('PUBLISH', channel, message)
      if kind == 'b' or (type(heard) == 'number' and heard > 0) then break end
    end
  end
end
return 1`,
};
