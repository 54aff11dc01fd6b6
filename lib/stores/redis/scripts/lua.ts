// Generated from lua/ by generate.mjs (`npm run lua`): do not edit.
import type { Script } from './script.js';

/**
 * Takes a lock that is free, and mints its fencing token. A lock that this owner value holds already counts as taken by
 * this attempt, since the command can run twice: its ttl starts anew, and it keeps its token.
 */
export const ACQUIRE: Script = {
  name: 'acquire',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 1,
  sha: '7830f9022269f3de60955ccebaa646efba989b4e',
  source: `local time = redis.call('TIME')
local now = string.format('%010d%06d', time[1], time[2])
local locks = #KEYS - 1
local reserved -- the token of the next lock, once tokens are reserved
local fence = KEYS[1]
local ttl = ARGV[1]
if #KEYS > 2 then
  local function each(lock, owner)
    local token = reserved or now
    local taken = redis.pcall('SET', lock, owner .. token, 'PX', ttl, 'NX')
    if not taken then
      local value = redis.pcall('GET', lock)
      if type(value) == 'table' then return {value.err} end
      local mine = value and (string.sub(value, 1, -17) == owner
        or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
      if not mine then return {redis.call('PTTL', lock), value} end
      redis.call('PEXPIRE', lock, ttl)
      return string.match(value, '@(%d+)%+?$')
    end
    if taken.err then return {taken.err} end
    if not reserved then
      local last = locks == 1 and now or string.format('%016.0f', tonumber(now) + locks - 1)
      local before = redis.pcall('SET', fence, last, 'GET')
      if before and (type(before) == 'table' or #before ~= 16 or before >= now) then
        local counter = type(before) == 'string' and tonumber(before)
        local problem = type(before) == 'table' and before.err or nil
        if counter and counter >= tonumber(now) then
          token = string.format('%016.0f', counter + 1)
          local highest = counter + locks
          if highest < 9e15 then
            problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
          else
            problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
          end
          if not problem then problem = redis.pcall('SET', lock, owner .. token, 'PX', ttl).err end
          if problem then redis.pcall('SET', fence, before) end
        end
        if problem then
          redis.call('DEL', lock)
          return {problem}
        end
      end
    end
    if locks > 1 then reserved = string.format('%016.0f', tonumber(token) + 1) end
    return token
  end
  local replies = {}
  for i = 0, (#KEYS - 1) / 1 - 1 do
    replies[i + 1] = each(KEYS[i + 2], ARGV[i + 2])
  end
  return replies
end
local lock = KEYS[2]
local owner = ARGV[2]
local token = reserved or now
local taken = redis.pcall('SET', lock, owner .. token, 'PX', ttl, 'NX')
if not taken then
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then return {value.err} end
  local mine = value and (string.sub(value, 1, -17) == owner
    or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
  if not mine then return {redis.call('PTTL', lock), value} end
  redis.call('PEXPIRE', lock, ttl)
  return string.match(value, '@(%d+)%+?$')
end
if taken.err then return {taken.err} end
if not reserved then
  local last = locks == 1 and now or string.format('%016.0f', tonumber(now) + locks - 1)
  local before = redis.pcall('SET', fence, last, 'GET')
  if before and (type(before) == 'table' or #before ~= 16 or before >= now) then
    local counter = type(before) == 'string' and tonumber(before)
    local problem = type(before) == 'table' and before.err or nil
    if counter and counter >= tonumber(now) then
      token = string.format('%016.0f', counter + 1)
      local highest = counter + locks
      if highest < 9e15 then
        problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
      else
        problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
      end
      if not problem then problem = redis.pcall('SET', lock, owner .. token, 'PX', ttl).err end
      if problem then redis.pcall('SET', fence, before) end
    end
    if problem then
      redis.call('DEL', lock)
      return {problem}
    end
  end
end
if locks > 1 then reserved = string.format('%016.0f', tonumber(token) + 1) end
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
  sharedKeys: 0,
  sharedArgs: 0,
  sha: '12dfefc5914083e47ebadc3e1fbfa43e502fa7ba',
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
    return {epoch, math.floor((now - since) / 1000), longest, now}
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
return {epoch, math.floor((now - since) / 1000), longest, now}`,
};

/**
 * Starts the ttl of a lock anew that its owner still holds.
 */
export const EXTEND: Script = {
  name: 'extend',
  order: 2,
  locksPerCall: 100,
  sharedKeys: 0,
  sharedArgs: 1,
  sha: '7ced7b87d5130c46301869782f4e3011c564aa22',
  source: `local ttl = ARGV[1]
if #KEYS > 1 then
  local function each(lock, owner)
    local value = redis.pcall('GET', lock)
    if type(value) == 'string' then
      local mine = value and (string.sub(value, 1, -17) == owner
        or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
      return mine and redis.call('PEXPIRE', lock, ttl) or -1
    end
    if not value then return 0 end
    if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
    return -1
  end
  local replies = {}
  for i = 0, #KEYS / 1 - 1 do
    replies[i + 1] = each(KEYS[i + 1], ARGV[i + 2])
  end
  return replies
end
local lock = KEYS[1]
local owner = ARGV[2]
local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  local mine = value and (string.sub(value, 1, -17) == owner
    or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
  return mine and redis.call('PEXPIRE', lock, ttl) or -1
end
if not value then return 0 end
if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
return -1`,
};

/**
 * Takes a lock away from whoever holds it, or from one owner only: it goes to the first in its queue, or to nobody. The process
 * of the holder gets a message, if it listens.
 */
export const FORCE_RELEASE: Script = {
  name: 'force-release',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 1,
  sha: '204f02e74fda4224e48911e801d33462681e066c',
  source: `local us, minted
local fence = KEYS[1]
local inbox = ARGV[1]
if #KEYS > 3 then
  local function each(lock, queue, key, from)
    local value = redis.pcall('GET', lock)
    if not value then return 0 end
    if type(value) == 'table' then
      if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
      value = ''
    end
    if from ~= '' and (string.match(value, '^(.+)@%d+[+=]?$') or value) ~= from then return 0 end
    if value ~= '' then
      local TAKEN = 'taken'
      local owner, process = string.match(value, '^((.+)/%w+)@%d+%+?$')
      if owner then
        local channel, message = inbox .. process, owner .. ' ' .. TAKEN .. ' ' .. key
        local slot_tag = string.match(fence, '{%w+}$') -- in a Cluster
        local heard = slot_tag and redis.pcall('SPUBLISH', channel .. ':' .. slot_tag, message)
        if type(heard) ~= 'number' or heard == 0 then redis.pcall('PUBLISH', channel, message) end
      end
    end
    local GRANT_TTL_MS = '2000'
    local SILENT_US = 2000000
    local MOST_UNKNOWN = 1000
    local PAGE = 100
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
      local kind, channel, ticket
      if next_entry then kind, channel, ticket = string.match(next_entry, '^([gw]) (%S+) (.+)$') end
      if next_entry and not kind and passed_over < MOST_UNKNOWN then
        passed_over = passed_over + 1
      elseif not kind then
        redis.call('DEL', lock)
        break
      else
        local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
        local heard_at, deaf_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
        local sign_at = math.max(heard_at, -(tonumber(signs[2]) or 0), deaf_at)
        if not us then
          local time = redis.call('TIME')
          us = time[1] * 1000000 + time[2]
        end
        if not latest and us - sign_at > SILENT_US then
          latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
        end
        local is_silent = latest and latest - sign_at > SILENT_US
        local is_last = not places[at] and passed_over == 0 -- all signs leave with it
        local left = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
        if left ~= 1 then
          redis.call('DEL', lock)
          break
        end
        local turns
        if kind == 'g' then
          local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
          if own_ticket then ticket, turns = own_ticket, own_turns end
        end
        local message, listeners = ticket, nil
        local is_blind = kind == 'g' and sign_at > heard_at
        local slot_tag = kind == 'g' and not is_blind and string.match(fence, '{%w+}$')
        if slot_tag then channel = channel .. ':' .. slot_tag end
        if is_silent then
          listeners = 0
        elseif kind == 'g' and not is_blind then
          listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
        end
        if kind == 'w' then
          redis.call('DEL', lock)
        elseif listeners ~= 0 then
          local count = tonumber(turns) or 1
          local MOST_AHEAD_US = 1000
          if not us then
            local time = redis.call('TIME')
            us = time[1] * 1000000 + time[2]
          end
          local first = math.max(us, (minted or 0) + 1)
          count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
          local token = string.format('%016.0f', first)
          local final = count == 1 and token or string.format('%016.0f', first + count - 1)
          local before = redis.pcall('SET', fence, final, 'GET')
          local problem = type(before) == 'table' and before.err or nil
          local counter = not problem and not minted and tonumber(before or 0)
          if counter and counter >= first then
            count = 1
            first = counter + 1
            local highest = first
            token = string.format('%016.0f', first)
            final = string.format('%016.0f', highest)
            if highest < 9e15 then
              problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
            else
              problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
            end
            if problem then redis.pcall('SET', fence, before) end
          end
          if not problem then minted = first + count - 1 end
          if problem or redis.pcall('SET', lock, ticket .. '@' .. final .. '+', 'PX', GRANT_TTL_MS).err then
            redis.call('DEL', lock)
          elseif is_blind or listeners then
            local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
            message = ticket .. ' ' .. token .. ' ' .. final .. ' ' .. bound
          end
        end
        if listeners ~= 0 then
          if is_blind and deaf_at == sign_at then break end
          local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
          if type(heard) == 'number' and (is_blind or heard > 0) then break end
        end
      end
    end
    return {1, value}
  end
  local replies = {}
  for i = 0, (#KEYS - 1) / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 2], KEYS[2 * i + 3], ARGV[2 * i + 2], ARGV[2 * i + 3])
  end
  return replies
end
local lock, queue = KEYS[2], KEYS[3]
local key, from = ARGV[2], ARGV[3]
local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then
  if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
  value = ''
end
if from ~= '' and (string.match(value, '^(.+)@%d+[+=]?$') or value) ~= from then return 0 end
if value ~= '' then
  local TAKEN = 'taken'
  local owner, process = string.match(value, '^((.+)/%w+)@%d+%+?$')
  if owner then
    local channel, message = inbox .. process, owner .. ' ' .. TAKEN .. ' ' .. key
    local slot_tag = string.match(fence, '{%w+}$') -- in a Cluster
    local heard = slot_tag and redis.pcall('SPUBLISH', channel .. ':' .. slot_tag, message)
    if type(heard) ~= 'number' or heard == 0 then redis.pcall('PUBLISH', channel, message) end
  end
end
local GRANT_TTL_MS = '2000'
local SILENT_US = 2000000
local MOST_UNKNOWN = 1000
local PAGE = 100
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
  local kind, channel, ticket
  if next_entry then kind, channel, ticket = string.match(next_entry, '^([gw]) (%S+) (.+)$') end
  if next_entry and not kind and passed_over < MOST_UNKNOWN then
    passed_over = passed_over + 1
  elseif not kind then
    redis.call('DEL', lock)
    break
  else
    local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
    local heard_at, deaf_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
    local sign_at = math.max(heard_at, -(tonumber(signs[2]) or 0), deaf_at)
    if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end
    if not latest and us - sign_at > SILENT_US then
      latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
    end
    local is_silent = latest and latest - sign_at > SILENT_US
    local is_last = not places[at] and passed_over == 0 -- all signs leave with it
    local left = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
    if left ~= 1 then
      redis.call('DEL', lock)
      break
    end
    local turns
    if kind == 'g' then
      local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
      if own_ticket then ticket, turns = own_ticket, own_turns end
    end
    local message, listeners = ticket, nil
    local is_blind = kind == 'g' and sign_at > heard_at
    local slot_tag = kind == 'g' and not is_blind and string.match(fence, '{%w+}$')
    if slot_tag then channel = channel .. ':' .. slot_tag end
    if is_silent then
      listeners = 0
    elseif kind == 'g' and not is_blind then
      listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
    end
    if kind == 'w' then
      redis.call('DEL', lock)
    elseif listeners ~= 0 then
      local count = tonumber(turns) or 1
      local MOST_AHEAD_US = 1000
      if not us then
        local time = redis.call('TIME')
        us = time[1] * 1000000 + time[2]
      end
      local first = math.max(us, (minted or 0) + 1)
      count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
      local token = string.format('%016.0f', first)
      local final = count == 1 and token or string.format('%016.0f', first + count - 1)
      local before = redis.pcall('SET', fence, final, 'GET')
      local problem = type(before) == 'table' and before.err or nil
      local counter = not problem and not minted and tonumber(before or 0)
      if counter and counter >= first then
        count = 1
        first = counter + 1
        local highest = first
        token = string.format('%016.0f', first)
        final = string.format('%016.0f', highest)
        if highest < 9e15 then
          problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
        else
          problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
        end
        if problem then redis.pcall('SET', fence, before) end
      end
      if not problem then minted = first + count - 1 end
      if problem or redis.pcall('SET', lock, ticket .. '@' .. final .. '+', 'PX', GRANT_TTL_MS).err then
        redis.call('DEL', lock)
      elseif is_blind or listeners then
        local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
        message = ticket .. ' ' .. token .. ' ' .. final .. ' ' .. bound
      end
    end
    if listeners ~= 0 then
      if is_blind and deaf_at == sign_at then break end
      local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
      if type(heard) == 'number' and (is_blind or heard > 0) then break end
    end
  end
end
return {1, value}`,
};

/**
 * Writes down, on an operator's word, that a node of a Redlock has kept all locks that it ever granted, as there are none:
 * so it votes at once. Looks for any key of the prefix in the same step, so that no lock, counter or admission can come
 * between.
 */
export const INITIALISE: Script = {
  name: 'initialise',
  order: 0,
  locksPerCall: 50,
  sharedKeys: 0,
  sharedArgs: 0,
  sha: '12f32b8358e190003888b4e1b4b61c49e1b88144',
  source: `if #KEYS > 1 then
  local function each(admission, run, age)
    local prefix = string.sub(admission, 1, -#'admission' - 1)
    local pattern = string.gsub(prefix, '[%*%?%[%]\\\\]', '\\\\%0') .. '*'
    local cursor, looked = '0', 0
    repeat
      local page = redis.pcall('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1000)
      if page.err then return {page.err} end
      if page[2][1] then return {'used', page[2][1]} end
      cursor, looked = page[1], looked + 1000
    until cursor == '0' or looked >= 100000
    if cursor ~= '0' then return {'full', looked} end
    if age == '' then return 0 end
    local time = redis.call('TIME')
    local since = string.format('%.0f', time[1] * 1000000 + time[2] - age)
    local set = redis.pcall('SET', admission, since .. ' 0 ' .. run)
    return set.err and {set.err} or 0
  end
  local replies = {}
  for i = 0, #KEYS / 1 - 1 do
    replies[i + 1] = each(KEYS[i + 1], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local admission = KEYS[1]
local run, age = ARGV[1], ARGV[2]
local prefix = string.sub(admission, 1, -#'admission' - 1)
local pattern = string.gsub(prefix, '[%*%?%[%]\\\\]', '\\\\%0') .. '*'
local cursor, looked = '0', 0
repeat
  local page = redis.pcall('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1000)
  if page.err then return {page.err} end
  if page[2][1] then return {'used', page[2][1]} end
  cursor, looked = page[1], looked + 1000
until cursor == '0' or looked >= 100000
if cursor ~= '0' then return {'full', looked} end
if age == '' then return 0 end
local time = redis.call('TIME')
local since = string.format('%.0f', time[1] * 1000000 + time[2] - age)
local set = redis.pcall('SET', admission, since .. ' 0 ' .. run)
return set.err and {set.err} or 0`,
};

/**
 * Reads a lock, and the first places in its queue.
 */
export const INSPECT: Script = {
  name: 'inspect',
  order: 4,
  locksPerCall: 5,
  sharedKeys: 0,
  sharedArgs: 0,
  sha: '97e8b8d62e528cb3e49dd2a19488db94f64f32bf',
  source: `local SILENT_US = 2000000
local MOST_PLACES = '100'
if #KEYS > 2 then
  local function each(lock, queue)
    local value = redis.pcall('GET', lock)
    if not value then return 0 end
    if type(value) == 'table' then return {value.err} end
    local time = redis.call('TIME')
    local us = time[1] * 1000000 + time[2]
    local reply = {redis.call('PTTL', lock), value, us}
    if string.find(string.sub(value, -17), '^@%d+$') then return reply end -- nobody can stand in the queue
    local latest = -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0)
    for _, entry in ipairs(redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', MOST_PLACES)) do
      local channel, ticket = string.match(entry, '^[gw] (%S+) (.+)$')
      if ticket then
        local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
        local sign_at = 0
        for at = 1, 3 do sign_at = math.max(sign_at, -(tonumber(signs[at]) or 0)) end
        local is_silent = math.min(us, latest) - sign_at > SILENT_US
        if not is_silent then reply[#reply + 1] = string.match(ticket, '^(.+)~%d+$') or ticket end
      end
    end
    return reply
  end
  local replies = {}
  for i = 0, #KEYS / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 1], KEYS[2 * i + 2])
  end
  return replies
end
local lock, queue = KEYS[1], KEYS[2]
local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then return {value.err} end
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local reply = {redis.call('PTTL', lock), value, us}
if string.find(string.sub(value, -17), '^@%d+$') then return reply end -- nobody can stand in the queue
local latest = -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0)
for _, entry in ipairs(redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', MOST_PLACES)) do
  local channel, ticket = string.match(entry, '^[gw] (%S+) (.+)$')
  if ticket then
    local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
    local sign_at = 0
    for at = 1, 3 do sign_at = math.max(sign_at, -(tonumber(signs[at]) or 0)) end
    local is_silent = math.min(us, latest) - sign_at > SILENT_US
    if not is_silent then reply[#reply + 1] = string.match(ticket, '^(.+)~%d+$') or ticket end
  end
end
return reply`,
};

/**
 * Keeps a lock after the work of its owner: it stands for its time, is handed to nobody, and ends by itself.
 */
export const KEEP: Script = {
  name: 'keep',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 0,
  sharedArgs: 0,
  sha: 'cdae0a350a8279610e805e9e2fb8b1ca92de1f76',
  source: `if #KEYS > 1 then
  local function each(lock, ttl, owner)
    local value = redis.pcall('GET', lock)
    if type(value) == 'string' then
      if string.sub(value, 1, -17) ~= owner and string.sub(value, 1, -18) ~= owner then return -1 end
      local kept = redis.pcall('SET', lock, string.sub(value, 1, #owner + 16) .. '=', 'PX', ttl)
      return kept.err and {kept.err} or 1
    end
    if not value then return 0 end
    if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
    return -1
  end
  local replies = {}
  for i = 0, #KEYS / 1 - 1 do
    replies[i + 1] = each(KEYS[i + 1], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local lock = KEYS[1]
local ttl, owner = ARGV[1], ARGV[2]
local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  if string.sub(value, 1, -17) ~= owner and string.sub(value, 1, -18) ~= owner then return -1 end
  local kept = redis.pcall('SET', lock, string.sub(value, 1, #owner + 16) .. '=', 'PX', ttl)
  return kept.err and {kept.err} or 1
end
if not value then return 0 end
if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
return -1`,
};

/**
 * Raises the fencing counter of a lock that its owner still holds to a token, and never lowers it: the write-back by
 * which a Redlock makes a token known to a majority before it is issued. A counter that is absent was lost since this node
 * voted, and is not made again: that is left to the votes, which ask whether the node may vote.
 */
export const RAISE_FENCE: Script = {
  name: 'raise-fence',
  order: 2,
  locksPerCall: 50,
  sharedKeys: 0,
  sharedArgs: 0,
  sha: 'f7e4ad992d690e12393e3bc229c737f7aafe787f',
  source: `if #KEYS > 2 then
  local function each(lock, fence, owner, token)
    local value = redis.pcall('GET', lock)
    if not value then return 0 end
    if type(value) == 'table' then return {value.err} end
    local vote, flag = string.match(value, '@(%d+)(%+?)$')
    if not vote or string.sub(value, 1, -17 - #flag) ~= owner or vote > token then return 0 end
    local counter = redis.pcall('GET', fence)
    if not counter then return 0 end
    if type(counter) == 'table' then return {counter.err} end
    local set = {}
    if (tonumber(counter) or 0) < tonumber(token) then set = redis.pcall('SET', fence, token) end
    if not set.err and vote ~= token then set = redis.pcall('SET', lock, owner .. token .. flag, 'KEEPTTL') end
    return set.err and {set.err} or 1
  end
  local replies = {}
  for i = 0, #KEYS / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 1], KEYS[2 * i + 2], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local lock, fence = KEYS[1], KEYS[2]
local owner, token = ARGV[1], ARGV[2]
local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then return {value.err} end
local vote, flag = string.match(value, '@(%d+)(%+?)$')
if not vote or string.sub(value, 1, -17 - #flag) ~= owner or vote > token then return 0 end
local counter = redis.pcall('GET', fence)
if not counter then return 0 end
if type(counter) == 'table' then return {counter.err} end
local set = {}
if (tonumber(counter) or 0) < tonumber(token) then set = redis.pcall('SET', fence, token) end
if not set.err and vote ~= token then set = redis.pcall('SET', lock, owner .. token .. flag, 'KEEPTTL') end
return set.err and {set.err} or 1`,
};

/**
 * Gives back a lock that its owner still holds: to the first in its queue, or to nobody. A value without + at its end says
 * that nobody can stand in the queue. A lock that is kept is given back, too: when its time was over before that was confirmed.
 */
export const RELEASE: Script = {
  name: 'release',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 0,
  sha: 'cde8c65b03d1ebfc9f8c2cc227d34bd70277eacc',
  source: `local us, minted
local fence = KEYS[1]
if #KEYS > 3 then
  local function each(lock, queue, owner)
    local value = redis.pcall('GET', lock)
    if type(value) == 'string' then
      if string.sub(value, 1, -17) == owner then return redis.call('DEL', lock) end
      if string.sub(value, 1, -18) ~= owner then return -1 end
      local GRANT_TTL_MS = '2000'
      local SILENT_US = 2000000
      local MOST_UNKNOWN = 1000
      local PAGE = 100
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
        local kind, channel, ticket
        if next_entry then kind, channel, ticket = string.match(next_entry, '^([gw]) (%S+) (.+)$') end
        if next_entry and not kind and passed_over < MOST_UNKNOWN then
          passed_over = passed_over + 1
        elseif not kind then
          redis.call('DEL', lock)
          break
        else
          local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
          local heard_at, deaf_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
          local sign_at = math.max(heard_at, -(tonumber(signs[2]) or 0), deaf_at)
          if not us then
            local time = redis.call('TIME')
            us = time[1] * 1000000 + time[2]
          end
          if not latest and us - sign_at > SILENT_US then
            latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
          end
          local is_silent = latest and latest - sign_at > SILENT_US
          local is_last = not places[at] and passed_over == 0 -- all signs leave with it
          local left = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
          if left ~= 1 then
            redis.call('DEL', lock)
            break
          end
          local turns
          if kind == 'g' then
            local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
            if own_ticket then ticket, turns = own_ticket, own_turns end
          end
          local message, listeners = ticket, nil
          local is_blind = kind == 'g' and sign_at > heard_at
          local slot_tag = kind == 'g' and not is_blind and string.match(fence, '{%w+}$')
          if slot_tag then channel = channel .. ':' .. slot_tag end
          if is_silent then
            listeners = 0
          elseif kind == 'g' and not is_blind then
            listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
          end
          if kind == 'w' then
            redis.call('DEL', lock)
          elseif listeners ~= 0 then
            local count = tonumber(turns) or 1
            local MOST_AHEAD_US = 1000
            if not us then
              local time = redis.call('TIME')
              us = time[1] * 1000000 + time[2]
            end
            local first = math.max(us, (minted or 0) + 1)
            count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
            local token = string.format('%016.0f', first)
            local final = count == 1 and token or string.format('%016.0f', first + count - 1)
            local before = redis.pcall('SET', fence, final, 'GET')
            local problem = type(before) == 'table' and before.err or nil
            local counter = not problem and not minted and tonumber(before or 0)
            if counter and counter >= first then
              count = 1
              first = counter + 1
              local highest = first
              token = string.format('%016.0f', first)
              final = string.format('%016.0f', highest)
              if highest < 9e15 then
                problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
              else
                problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
              end
              if problem then redis.pcall('SET', fence, before) end
            end
            if not problem then minted = first + count - 1 end
            if problem or redis.pcall('SET', lock, ticket .. '@' .. final .. '+', 'PX', GRANT_TTL_MS).err then
              redis.call('DEL', lock)
            elseif is_blind or listeners then
              local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
              message = ticket .. ' ' .. token .. ' ' .. final .. ' ' .. bound
            end
          end
          if listeners ~= 0 then
            if is_blind and deaf_at == sign_at then break end
            local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
            if type(heard) == 'number' and (is_blind or heard > 0) then break end
          end
        end
      end
      return 1
    end
    if not value then return 0 end
    if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
    return -1
  end
  local replies = {}
  for i = 0, (#KEYS - 1) / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 2], KEYS[2 * i + 3], ARGV[i + 1])
  end
  return replies
end
local lock, queue = KEYS[2], KEYS[3]
local owner = ARGV[1]
local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  if string.sub(value, 1, -17) == owner then return redis.call('DEL', lock) end
  if string.sub(value, 1, -18) ~= owner then return -1 end
  local GRANT_TTL_MS = '2000'
  local SILENT_US = 2000000
  local MOST_UNKNOWN = 1000
  local PAGE = 100
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
    local kind, channel, ticket
    if next_entry then kind, channel, ticket = string.match(next_entry, '^([gw]) (%S+) (.+)$') end
    if next_entry and not kind and passed_over < MOST_UNKNOWN then
      passed_over = passed_over + 1
    elseif not kind then
      redis.call('DEL', lock)
      break
    else
      local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
      local heard_at, deaf_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
      local sign_at = math.max(heard_at, -(tonumber(signs[2]) or 0), deaf_at)
      if not us then
        local time = redis.call('TIME')
        us = time[1] * 1000000 + time[2]
      end
      if not latest and us - sign_at > SILENT_US then
        latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
      end
      local is_silent = latest and latest - sign_at > SILENT_US
      local is_last = not places[at] and passed_over == 0 -- all signs leave with it
      local left = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
      if left ~= 1 then
        redis.call('DEL', lock)
        break
      end
      local turns
      if kind == 'g' then
        local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
        if own_ticket then ticket, turns = own_ticket, own_turns end
      end
      local message, listeners = ticket, nil
      local is_blind = kind == 'g' and sign_at > heard_at
      local slot_tag = kind == 'g' and not is_blind and string.match(fence, '{%w+}$')
      if slot_tag then channel = channel .. ':' .. slot_tag end
      if is_silent then
        listeners = 0
      elseif kind == 'g' and not is_blind then
        listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
      end
      if kind == 'w' then
        redis.call('DEL', lock)
      elseif listeners ~= 0 then
        local count = tonumber(turns) or 1
        local MOST_AHEAD_US = 1000
        if not us then
          local time = redis.call('TIME')
          us = time[1] * 1000000 + time[2]
        end
        local first = math.max(us, (minted or 0) + 1)
        count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
        local token = string.format('%016.0f', first)
        local final = count == 1 and token or string.format('%016.0f', first + count - 1)
        local before = redis.pcall('SET', fence, final, 'GET')
        local problem = type(before) == 'table' and before.err or nil
        local counter = not problem and not minted and tonumber(before or 0)
        if counter and counter >= first then
          count = 1
          first = counter + 1
          local highest = first
          token = string.format('%016.0f', first)
          final = string.format('%016.0f', highest)
          if highest < 9e15 then
            problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
          else
            problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
          end
          if problem then redis.pcall('SET', fence, before) end
        end
        if not problem then minted = first + count - 1 end
        if problem or redis.pcall('SET', lock, ticket .. '@' .. final .. '+', 'PX', GRANT_TTL_MS).err then
          redis.call('DEL', lock)
        elseif is_blind or listeners then
          local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
          message = ticket .. ' ' .. token .. ' ' .. final .. ' ' .. bound
        end
      end
      if listeners ~= 0 then
        if is_blind and deaf_at == sign_at then break end
        local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
        if type(heard) == 'number' and (is_blind or heard > 0) then break end
      end
    end
  end
  return 1
end
if not value then return 0 end
if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
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
  sharedKeys: 0,
  sharedArgs: 1,
  sha: '58b0ec9e43ae9ab441f509f0ec986a37af426758',
  source: `local ttl = ARGV[1]
if #KEYS > 1 then
  local function each(lock, owner, token)
    local value = redis.pcall('GET', lock)
    if not value then
      local set = redis.pcall('SET', lock, owner .. token .. '+', 'PX', ttl) -- its queue may have outlived it
      return set.err and {set.err} or 2
    end
    if type(value) == 'string' then
      local mine = value and (string.sub(value, 1, -17) == owner
        or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
      return mine and redis.call('PEXPIRE', lock, ttl) or -1
    end
    if not value then return 0 end
    if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
    return -1
  end
  local replies = {}
  for i = 0, #KEYS / 1 - 1 do
    replies[i + 1] = each(KEYS[i + 1], ARGV[2 * i + 2], ARGV[2 * i + 3])
  end
  return replies
end
local lock = KEYS[1]
local owner, token = ARGV[2], ARGV[3]
local value = redis.pcall('GET', lock)
if not value then
  local set = redis.pcall('SET', lock, owner .. token .. '+', 'PX', ttl) -- its queue may have outlived it
  return set.err and {set.err} or 2
end
if type(value) == 'string' then
  local mine = value and (string.sub(value, 1, -17) == owner
    or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
  return mine and redis.call('PEXPIRE', lock, ttl) or -1
end
if not value then return 0 end
if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
return -1`,
};

/**
 * Gives a lock another owner, if a certain one has it, and mints a token for the new one, or leaves the lock the token that it has. A
 * lock that the new owner has already counts as transferred by this call, since the command can run twice: its ttl starts anew, and
 * it keeps its token.
 */
export const TRANSFER: Script = {
  name: 'transfer',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 0,
  sha: '3513ada42c144e0aaa93d81254c4f3ebf1f30d8e',
  source: `local us, minted
local fence = KEYS[1]
if #KEYS > 2 then
  local function each(lock, from, to, ttl, mints)
    local value = redis.pcall('GET', lock)
    if type(value) ~= 'string' then
      if not value then return 0 end
      if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
      return -1
    end
    local flag = string.sub(value, -1) == '+' and '+' or ''
    local owner = string.sub(value, 1, -17 - #flag)
    local latest = string.sub(value, -16 - #flag, -1 - #flag)
    if owner == to then
      redis.call('PEXPIRE', lock, ttl)
      return latest
    end
    if owner ~= from then return -1 end
    if mints == '1' then
      local count = 1
      local MOST_AHEAD_US = 1000
      if not us then
        local time = redis.call('TIME')
        us = time[1] * 1000000 + time[2]
      end
      local first = math.max(us, (minted or 0) + 1)
      count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
      local token = string.format('%016.0f', first)
      local final = count == 1 and token or string.format('%016.0f', first + count - 1)
      local before = redis.pcall('SET', fence, final, 'GET')
      local problem = type(before) == 'table' and before.err or nil
      local counter = not problem and not minted and tonumber(before or 0)
      if counter and counter >= first then
        count = 1
        first = counter + 1
        local highest = first
        token = string.format('%016.0f', first)
        final = string.format('%016.0f', highest)
        if highest < 9e15 then
          problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
        else
          problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
        end
        if problem then redis.pcall('SET', fence, before) end
      end
      if not problem then minted = first + count - 1 end
      if problem then return {problem} end
      latest = final
    end
    local set = redis.pcall('SET', lock, to .. latest .. flag, 'PX', ttl)
    return set.err and {set.err} or latest
  end
  local replies = {}
  for i = 0, (#KEYS - 1) / 1 - 1 do
    replies[i + 1] = each(KEYS[i + 2], ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3], ARGV[4 * i + 4])
  end
  return replies
end
local lock = KEYS[2]
local from, to, ttl, mints = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  if not value then return 0 end
  if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
  return -1
end
local flag = string.sub(value, -1) == '+' and '+' or ''
local owner = string.sub(value, 1, -17 - #flag)
local latest = string.sub(value, -16 - #flag, -1 - #flag)
if owner == to then
  redis.call('PEXPIRE', lock, ttl)
  return latest
end
if owner ~= from then return -1 end
if mints == '1' then
  local count = 1
  local MOST_AHEAD_US = 1000
  if not us then
    local time = redis.call('TIME')
    us = time[1] * 1000000 + time[2]
  end
  local first = math.max(us, (minted or 0) + 1)
  count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
  local token = string.format('%016.0f', first)
  local final = count == 1 and token or string.format('%016.0f', first + count - 1)
  local before = redis.pcall('SET', fence, final, 'GET')
  local problem = type(before) == 'table' and before.err or nil
  local counter = not problem and not minted and tonumber(before or 0)
  if counter and counter >= first then
    count = 1
    first = counter + 1
    local highest = first
    token = string.format('%016.0f', first)
    final = string.format('%016.0f', highest)
    if highest < 9e15 then
      problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
    else
      problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
    end
    if problem then redis.pcall('SET', fence, before) end
  end
  if not problem then minted = first + count - 1 end
  if problem then return {problem} end
  latest = final
end
local set = redis.pcall('SET', lock, to .. latest .. flag, 'PX', ttl)
return set.err and {set.err} or latest`,
};

/**
 * Asks for a lock on behalf of a waiter, and gives back, in the same step, the lock that its process had of the same key. The
 * waiter gets the lock if it is free, or was handed over to it, and mints its tokens; if not, it takes a place in the queue,
 * unless it has one. A lock that is free goes to the first place, whoever asks.
 */
export const TURN: Script = {
  name: 'turn',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 1,
  sha: '2e0fbcdcc99113cbee9cbbcc1b6bb363e649a5ab',
  source: `local us, minted
local fence = KEYS[1]
local sign = ARGV[1]
if #KEYS > 3 then
  local function each(lock, queue, give, owner, ttl, count, entry, number, placed)
    local value = redis.pcall('GET', lock)
    if type(value) == 'table' then return {value.err} end
    local gave = 0
    if give ~= '' and value then
      local is_given = string.sub(value, 1, -17) == give or string.sub(value, 1, -18) == give
      gave = is_given and 1 or -1
      if is_given then value = false end
    end
    local mine = value and (string.sub(value, 1, -17) == owner
      or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
    if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end
    local was_gone = 0
    local head -- the first place, and its number
    if not mine then
      local other_is_first
      if not value then
        head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
        other_is_first = head[1] and head[1] ~= entry and not (number ~= '' and tonumber(number) < tonumber(head[2]))
      end
      if entry ~= '' and (value or other_is_first) then
        local QUEUE_TTL_MS = '10000'
        local is_new
        if number ~= '' then
          is_new = redis.pcall('ZADD', queue, math.max(1, math.min(tonumber(number), us)), entry) == 1
        else
          local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
          is_new = redis.pcall('ZADD', queue, 'NX', math.max(us, (tonumber(last) or 0) + 1), entry) == 1
        end
        was_gone = is_new and placed == '1' and 1 or 0
        if is_new then redis.pcall('ZREMRANGEBYSCORE', queue, QUEUE_TTL_MS * 1000 - us, '(0') end
        redis.pcall('ZADD', queue, -us, sign .. string.match(entry, '^%S+( %S+)'))
        redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
        if value and #value > 17 and string.find(string.sub(value, -17), '^@%d+$') then
          redis.pcall('SET', lock, value .. '+', 'KEEPTTL')
        end
      end
      if other_is_first then
        local GRANT_TTL_MS = '2000'
        local SILENT_US = 2000000
        local MOST_UNKNOWN = 1000
        local PAGE = 100
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
          local kind, channel, ticket
          if next_entry then kind, channel, ticket = string.match(next_entry, '^([gw]) (%S+) (.+)$') end
          if next_entry and not kind and passed_over < MOST_UNKNOWN then
            passed_over = passed_over + 1
          elseif not kind then
            redis.call('DEL', lock)
            break
          else
            local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
            local heard_at, deaf_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
            local sign_at = math.max(heard_at, -(tonumber(signs[2]) or 0), deaf_at)
            if not us then
              local time = redis.call('TIME')
              us = time[1] * 1000000 + time[2]
            end
            if not latest and us - sign_at > SILENT_US then
              latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
            end
            local is_silent = latest and latest - sign_at > SILENT_US
            local is_last = not places[at] and passed_over == 0 -- all signs leave with it
            local left = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
            if left ~= 1 then
              redis.call('DEL', lock)
              break
            end
            local turns
            if kind == 'g' then
              local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
              if own_ticket then ticket, turns = own_ticket, own_turns end
            end
            local message, listeners = ticket, nil
            local is_blind = kind == 'g' and sign_at > heard_at
            local slot_tag = kind == 'g' and not is_blind and string.match(fence, '{%w+}$')
            if slot_tag then channel = channel .. ':' .. slot_tag end
            if is_silent then
              listeners = 0
            elseif kind == 'g' and not is_blind then
              listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
            end
            if kind == 'w' then
              redis.call('DEL', lock)
            elseif listeners ~= 0 then
              local count = tonumber(turns) or 1
              local MOST_AHEAD_US = 1000
              if not us then
                local time = redis.call('TIME')
                us = time[1] * 1000000 + time[2]
              end
              local first = math.max(us, (minted or 0) + 1)
              count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
              local token = string.format('%016.0f', first)
              local final = count == 1 and token or string.format('%016.0f', first + count - 1)
              local before = redis.pcall('SET', fence, final, 'GET')
              local problem = type(before) == 'table' and before.err or nil
              local counter = not problem and not minted and tonumber(before or 0)
              if counter and counter >= first then
                count = 1
                first = counter + 1
                local highest = first
                token = string.format('%016.0f', first)
                final = string.format('%016.0f', highest)
                if highest < 9e15 then
                  problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
                else
                  problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
                end
                if problem then redis.pcall('SET', fence, before) end
              end
              if not problem then minted = first + count - 1 end
              if problem or redis.pcall('SET', lock, ticket .. '@' .. final .. '+', 'PX', GRANT_TTL_MS).err then
                redis.call('DEL', lock)
              elseif is_blind or listeners then
                local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
                message = ticket .. ' ' .. token .. ' ' .. final .. ' ' .. bound
              end
            end
            if listeners ~= 0 then
              if is_blind and deaf_at == sign_at then break end
              local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
              if type(heard) == 'number' and (is_blind or heard > 0) then break end
            end
          end
        end
        head = nil
        value = redis.call('GET', lock)
        mine = value and string.sub(value, 1, -18) == owner
      end
    end
    if value and not mine then return {0, gave, us, redis.call('PTTL', lock), value, was_gone} end
    count = tonumber(count)
    local MOST_AHEAD_US = 1000
    if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end
    local first = math.max(us, (minted or 0) + 1)
    count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
    local token = string.format('%016.0f', first)
    local final = count == 1 and token or string.format('%016.0f', first + count - 1)
    local before = redis.pcall('SET', fence, final, 'GET')
    local problem = type(before) == 'table' and before.err or nil
    local counter = not problem and not minted and tonumber(before or 0)
    if counter and counter >= first then
      count = 1
      first = counter + 1
      local highest = first
      token = string.format('%016.0f', first)
      final = string.format('%016.0f', highest)
      if highest < 9e15 then
        problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
      else
        problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
      end
      if problem then redis.pcall('SET', fence, before) end
    end
    if not problem then minted = first + count - 1 end
    if not problem then problem = redis.pcall('SET', lock, owner .. final .. '+', 'PX', ttl).err end
    if entry ~= '' then
      if redis.pcall('ZREM', queue, entry) == 1 then
        head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
        if not head[1] then redis.pcall('DEL', queue) end
      end
    end
    if problem then
      redis.call('DEL', lock)
      return give == '' and {problem} or {problem, gave}
    end
    if not head then head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES') end
    return {1, gave, us, token, final, head[2] or us}
  end
  local replies = {}
  for i = 0, (#KEYS - 1) / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 2], KEYS[2 * i + 3], ARGV[7 * i + 2], ARGV[7 * i + 3], ARGV[7 * i + 4], ARGV[7 * i + 5], ARGV[7 * i + 6], ARGV[7 * i + 7], ARGV[7 * i + 8])
  end
  return replies
end
local lock, queue = KEYS[2], KEYS[3]
local give, owner, ttl, count = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local entry, number, placed = ARGV[6], ARGV[7], ARGV[8]
local value = redis.pcall('GET', lock)
if type(value) == 'table' then return {value.err} end
local gave = 0
if give ~= '' and value then
  local is_given = string.sub(value, 1, -17) == give or string.sub(value, 1, -18) == give
  gave = is_given and 1 or -1
  if is_given then value = false end
end
local mine = value and (string.sub(value, 1, -17) == owner
  or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
if not us then
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
end
local was_gone = 0
local head -- the first place, and its number
if not mine then
  local other_is_first
  if not value then
    head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    other_is_first = head[1] and head[1] ~= entry and not (number ~= '' and tonumber(number) < tonumber(head[2]))
  end
  if entry ~= '' and (value or other_is_first) then
    local QUEUE_TTL_MS = '10000'
    local is_new
    if number ~= '' then
      is_new = redis.pcall('ZADD', queue, math.max(1, math.min(tonumber(number), us)), entry) == 1
    else
      local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
      is_new = redis.pcall('ZADD', queue, 'NX', math.max(us, (tonumber(last) or 0) + 1), entry) == 1
    end
    was_gone = is_new and placed == '1' and 1 or 0
    if is_new then redis.pcall('ZREMRANGEBYSCORE', queue, QUEUE_TTL_MS * 1000 - us, '(0') end
    redis.pcall('ZADD', queue, -us, sign .. string.match(entry, '^%S+( %S+)'))
    redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
    if value and #value > 17 and string.find(string.sub(value, -17), '^@%d+$') then
      redis.pcall('SET', lock, value .. '+', 'KEEPTTL')
    end
  end
  if other_is_first then
    local GRANT_TTL_MS = '2000'
    local SILENT_US = 2000000
    local MOST_UNKNOWN = 1000
    local PAGE = 100
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
      local kind, channel, ticket
      if next_entry then kind, channel, ticket = string.match(next_entry, '^([gw]) (%S+) (.+)$') end
      if next_entry and not kind and passed_over < MOST_UNKNOWN then
        passed_over = passed_over + 1
      elseif not kind then
        redis.call('DEL', lock)
        break
      else
        local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
        local heard_at, deaf_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
        local sign_at = math.max(heard_at, -(tonumber(signs[2]) or 0), deaf_at)
        if not us then
          local time = redis.call('TIME')
          us = time[1] * 1000000 + time[2]
        end
        if not latest and us - sign_at > SILENT_US then
          latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
        end
        local is_silent = latest and latest - sign_at > SILENT_US
        local is_last = not places[at] and passed_over == 0 -- all signs leave with it
        local left = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
        if left ~= 1 then
          redis.call('DEL', lock)
          break
        end
        local turns
        if kind == 'g' then
          local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
          if own_ticket then ticket, turns = own_ticket, own_turns end
        end
        local message, listeners = ticket, nil
        local is_blind = kind == 'g' and sign_at > heard_at
        local slot_tag = kind == 'g' and not is_blind and string.match(fence, '{%w+}$')
        if slot_tag then channel = channel .. ':' .. slot_tag end
        if is_silent then
          listeners = 0
        elseif kind == 'g' and not is_blind then
          listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
        end
        if kind == 'w' then
          redis.call('DEL', lock)
        elseif listeners ~= 0 then
          local count = tonumber(turns) or 1
          local MOST_AHEAD_US = 1000
          if not us then
            local time = redis.call('TIME')
            us = time[1] * 1000000 + time[2]
          end
          local first = math.max(us, (minted or 0) + 1)
          count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
          local token = string.format('%016.0f', first)
          local final = count == 1 and token or string.format('%016.0f', first + count - 1)
          local before = redis.pcall('SET', fence, final, 'GET')
          local problem = type(before) == 'table' and before.err or nil
          local counter = not problem and not minted and tonumber(before or 0)
          if counter and counter >= first then
            count = 1
            first = counter + 1
            local highest = first
            token = string.format('%016.0f', first)
            final = string.format('%016.0f', highest)
            if highest < 9e15 then
              problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
            else
              problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
            end
            if problem then redis.pcall('SET', fence, before) end
          end
          if not problem then minted = first + count - 1 end
          if problem or redis.pcall('SET', lock, ticket .. '@' .. final .. '+', 'PX', GRANT_TTL_MS).err then
            redis.call('DEL', lock)
          elseif is_blind or listeners then
            local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
            message = ticket .. ' ' .. token .. ' ' .. final .. ' ' .. bound
          end
        end
        if listeners ~= 0 then
          if is_blind and deaf_at == sign_at then break end
          local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
          if type(heard) == 'number' and (is_blind or heard > 0) then break end
        end
      end
    end
    head = nil
    value = redis.call('GET', lock)
    mine = value and string.sub(value, 1, -18) == owner
  end
end
if value and not mine then return {0, gave, us, redis.call('PTTL', lock), value, was_gone} end
count = tonumber(count)
local MOST_AHEAD_US = 1000
if not us then
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
end
local first = math.max(us, (minted or 0) + 1)
count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
local token = string.format('%016.0f', first)
local final = count == 1 and token or string.format('%016.0f', first + count - 1)
local before = redis.pcall('SET', fence, final, 'GET')
local problem = type(before) == 'table' and before.err or nil
local counter = not problem and not minted and tonumber(before or 0)
if counter and counter >= first then
  count = 1
  first = counter + 1
  local highest = first
  token = string.format('%016.0f', first)
  final = string.format('%016.0f', highest)
  if highest < 9e15 then
    problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
  else
    problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
  end
  if problem then redis.pcall('SET', fence, before) end
end
if not problem then minted = first + count - 1 end
if not problem then problem = redis.pcall('SET', lock, owner .. final .. '+', 'PX', ttl).err end
if entry ~= '' then
  if redis.pcall('ZREM', queue, entry) == 1 then
    head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    if not head[1] then redis.pcall('DEL', queue) end
  end
end
if problem then
  redis.call('DEL', lock)
  return give == '' and {problem} or {problem, gave}
end
if not head then head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES') end
return {1, gave, us, token, final, head[2] or us}`,
};

/**
 * Takes a lock that is free on one node of a Redlock, with the token that the client proposes, or one near it. A lock that
 * this owner value holds already counts as taken by this attempt, since the command can run twice: it keeps its token.
 */
export const VOTE: Script = {
  name: 'vote',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 2,
  sha: '0aede00c030f08d34575578d5d7d59e35705d88b',
  source: `local admission = KEYS[1]
local epoch, ttl = ARGV[1], ARGV[2]
if #KEYS > 3 then
  local function each(lock, fence, vote)
    local taken = redis.pcall('SET', lock, vote, 'PX', ttl, 'NX')
    if not taken then
      local owner, value = string.sub(vote, 1, -17), redis.pcall('GET', lock)
      if type(value) == 'table' then return {value.err} end
      local mine = value and (string.sub(value, 1, -17) == owner
        or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
      if not mine then return {redis.call('PTTL', lock), value} end
      redis.call('PEXPIRE', lock, ttl)
      return string.match(value, '@(%d+)%+?$')
    end
    if taken.err then return {taken.err} end
    local flag = ''
    local LIMIT_US = 1000000
    local WIPED = 'wiped'
    local proposal = string.sub(vote, -16)
    local time = redis.call('TIME')
    local us
    local is_near = string.sub(proposal, 1, -7) == time[1] -- of the same second, as most are
    if not is_near then
      us = time[1] * 1000000 + time[2]
      is_near = math.abs(proposal - us) <= LIMIT_US
    end
    local before
    if is_near then before = redis.pcall('SET', fence, proposal, 'GET') else before = redis.pcall('GET', fence) end
    if is_near and type(before) == 'string' and #before == 16 and before < proposal then return proposal end -- nearly always
    local problem = type(before) == 'table' and before.err or nil
    if problem then
      redis.call('DEL', lock)
      return {problem}
    end
    if not before and epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
      redis.call('DEL', lock, fence)
      return {WIPED, epoch}
    end
    if not before and is_near then return proposal end
    us = us or time[1] * 1000000 + time[2]
    local nearest = math.min(math.max(tonumber(proposal), us - LIMIT_US), us + LIMIT_US)
    local highest = math.max((tonumber(before or 0) or 0) + 1, nearest)
    local token = string.format('%016.0f', highest)
    if highest < 9e15 then
      problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
    else
      problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
    end
    if not problem then problem = redis.pcall('SET', lock, string.sub(vote, 1, -17) .. token .. flag, 'PX', ttl).err end
    if problem then
      if before then redis.pcall('SET', fence, before) else redis.pcall('DEL', fence) end
      redis.call('DEL', lock)
      return {problem}
    end
    return {token, 'at', us}
  end
  local replies = {}
  for i = 0, (#KEYS - 1) / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 2], KEYS[2 * i + 3], ARGV[i + 3])
  end
  return replies
end
local lock, fence = KEYS[2], KEYS[3]
local vote = ARGV[3]
local taken = redis.pcall('SET', lock, vote, 'PX', ttl, 'NX')
if not taken then
  local owner, value = string.sub(vote, 1, -17), redis.pcall('GET', lock)
  if type(value) == 'table' then return {value.err} end
  local mine = value and (string.sub(value, 1, -17) == owner
    or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
  if not mine then return {redis.call('PTTL', lock), value} end
  redis.call('PEXPIRE', lock, ttl)
  return string.match(value, '@(%d+)%+?$')
end
if taken.err then return {taken.err} end
local flag = ''
local LIMIT_US = 1000000
local WIPED = 'wiped'
local proposal = string.sub(vote, -16)
local time = redis.call('TIME')
local us
local is_near = string.sub(proposal, 1, -7) == time[1] -- of the same second, as most are
if not is_near then
  us = time[1] * 1000000 + time[2]
  is_near = math.abs(proposal - us) <= LIMIT_US
end
local before
if is_near then before = redis.pcall('SET', fence, proposal, 'GET') else before = redis.pcall('GET', fence) end
if is_near and type(before) == 'string' and #before == 16 and before < proposal then return proposal end -- nearly always
local problem = type(before) == 'table' and before.err or nil
if problem then
  redis.call('DEL', lock)
  return {problem}
end
if not before and epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
  redis.call('DEL', lock, fence)
  return {WIPED, epoch}
end
if not before and is_near then return proposal end
us = us or time[1] * 1000000 + time[2]
local nearest = math.min(math.max(tonumber(proposal), us - LIMIT_US), us + LIMIT_US)
local highest = math.max((tonumber(before or 0) or 0) + 1, nearest)
local token = string.format('%016.0f', highest)
if highest < 9e15 then
  problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
else
  problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
end
if not problem then problem = redis.pcall('SET', lock, string.sub(vote, 1, -17) .. token .. flag, 'PX', ttl).err end
if problem then
  if before then redis.pcall('SET', fence, before) else redis.pcall('DEL', fence) end
  redis.call('DEL', lock)
  return {problem}
end
return {token, 'at', us}`,
};

/**
 * The attempt of a waiter on one node of a Redlock: a vote as in vote.lua, if the lock is free; otherwise the waiter takes
 * a place in the queue, unless it has one, as in turn.lua. Places are numbered by the clock of the node.
 */
export const VOTE_OR_QUEUE: Script = {
  name: 'vote-or-queue',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 2,
  sha: 'af624223e67d43e3d8c8f7a4b514abd1c23a7c0a',
  source: `local us
local admission = KEYS[1]
local epoch, ttl = ARGV[1], ARGV[2]
if #KEYS > 4 then
  local function each(lock, fence, queue, vote, entry, placed)
    local owner = string.sub(vote, 1, -17)
    local value = redis.pcall('GET', lock)
    if type(value) == 'table' then return {value.err} end
    local mine = value and (string.sub(value, 1, -17) == owner
      or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
    if value and not mine then
      local was_gone = 0
      if entry ~= '' then
        local sign, number = 'h', ''
        if not us then
          local time = redis.call('TIME')
          us = time[1] * 1000000 + time[2]
        end
        local QUEUE_TTL_MS = '10000'
        local is_new
        if number ~= '' then
          is_new = redis.pcall('ZADD', queue, math.max(1, math.min(tonumber(number), us)), entry) == 1
        else
          local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
          is_new = redis.pcall('ZADD', queue, 'NX', math.max(us, (tonumber(last) or 0) + 1), entry) == 1
        end
        was_gone = is_new and placed == '1' and 1 or 0
        if is_new then redis.pcall('ZREMRANGEBYSCORE', queue, QUEUE_TTL_MS * 1000 - us, '(0') end
        redis.pcall('ZADD', queue, -us, sign .. string.match(entry, '^%S+( %S+)'))
        redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
        if value and #value > 17 and string.find(string.sub(value, -17), '^@%d+$') then
          redis.pcall('SET', lock, value .. '+', 'KEEPTTL')
        end
      end
      return {redis.call('PTTL', lock), value, was_gone}
    end
    if entry ~= '' then
      local head
      if redis.pcall('ZREM', queue, entry) == 1 then
        head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
        if not head[1] then redis.pcall('DEL', queue) end
      end
    end
    if mine then
      redis.call('PEXPIRE', lock, ttl)
      return string.match(value, '@(%d+)%+?$')
    end
    local flag = '+'
    local taken = redis.pcall('SET', lock, vote .. flag, 'PX', ttl)
    if taken.err then return {taken.err} end
    local LIMIT_US = 1000000
    local WIPED = 'wiped'
    local proposal = string.sub(vote, -16)
    local time = redis.call('TIME')
    local us
    local is_near = string.sub(proposal, 1, -7) == time[1] -- of the same second, as most are
    if not is_near then
      us = time[1] * 1000000 + time[2]
      is_near = math.abs(proposal - us) <= LIMIT_US
    end
    local before
    if is_near then before = redis.pcall('SET', fence, proposal, 'GET') else before = redis.pcall('GET', fence) end
    if is_near and type(before) == 'string' and #before == 16 and before < proposal then return proposal end -- nearly always
    local problem = type(before) == 'table' and before.err or nil
    if problem then
      redis.call('DEL', lock)
      return {problem}
    end
    if not before and epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
      redis.call('DEL', lock, fence)
      return {WIPED, epoch}
    end
    if not before and is_near then return proposal end
    us = us or time[1] * 1000000 + time[2]
    local nearest = math.min(math.max(tonumber(proposal), us - LIMIT_US), us + LIMIT_US)
    local highest = math.max((tonumber(before or 0) or 0) + 1, nearest)
    local token = string.format('%016.0f', highest)
    if highest < 9e15 then
      problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
    else
      problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
    end
    if not problem then problem = redis.pcall('SET', lock, string.sub(vote, 1, -17) .. token .. flag, 'PX', ttl).err end
    if problem then
      if before then redis.pcall('SET', fence, before) else redis.pcall('DEL', fence) end
      redis.call('DEL', lock)
      return {problem}
    end
    return {token, 'at', us}
  end
  local replies = {}
  for i = 0, (#KEYS - 1) / 3 - 1 do
    replies[i + 1] = each(KEYS[3 * i + 2], KEYS[3 * i + 3], KEYS[3 * i + 4], ARGV[3 * i + 3], ARGV[3 * i + 4], ARGV[3 * i + 5])
  end
  return replies
end
local lock, fence, queue = KEYS[2], KEYS[3], KEYS[4]
local vote, entry, placed = ARGV[3], ARGV[4], ARGV[5]
local owner = string.sub(vote, 1, -17)
local value = redis.pcall('GET', lock)
if type(value) == 'table' then return {value.err} end
local mine = value and (string.sub(value, 1, -17) == owner
  or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
if value and not mine then
  local was_gone = 0
  if entry ~= '' then
    local sign, number = 'h', ''
    if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end
    local QUEUE_TTL_MS = '10000'
    local is_new
    if number ~= '' then
      is_new = redis.pcall('ZADD', queue, math.max(1, math.min(tonumber(number), us)), entry) == 1
    else
      local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
      is_new = redis.pcall('ZADD', queue, 'NX', math.max(us, (tonumber(last) or 0) + 1), entry) == 1
    end
    was_gone = is_new and placed == '1' and 1 or 0
    if is_new then redis.pcall('ZREMRANGEBYSCORE', queue, QUEUE_TTL_MS * 1000 - us, '(0') end
    redis.pcall('ZADD', queue, -us, sign .. string.match(entry, '^%S+( %S+)'))
    redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
    if value and #value > 17 and string.find(string.sub(value, -17), '^@%d+$') then
      redis.pcall('SET', lock, value .. '+', 'KEEPTTL')
    end
  end
  return {redis.call('PTTL', lock), value, was_gone}
end
if entry ~= '' then
  local head
  if redis.pcall('ZREM', queue, entry) == 1 then
    head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    if not head[1] then redis.pcall('DEL', queue) end
  end
end
if mine then
  redis.call('PEXPIRE', lock, ttl)
  return string.match(value, '@(%d+)%+?$')
end
local flag = '+'
local taken = redis.pcall('SET', lock, vote .. flag, 'PX', ttl)
if taken.err then return {taken.err} end
local LIMIT_US = 1000000
local WIPED = 'wiped'
local proposal = string.sub(vote, -16)
local time = redis.call('TIME')
local us
local is_near = string.sub(proposal, 1, -7) == time[1] -- of the same second, as most are
if not is_near then
  us = time[1] * 1000000 + time[2]
  is_near = math.abs(proposal - us) <= LIMIT_US
end
local before
if is_near then before = redis.pcall('SET', fence, proposal, 'GET') else before = redis.pcall('GET', fence) end
if is_near and type(before) == 'string' and #before == 16 and before < proposal then return proposal end -- nearly always
local problem = type(before) == 'table' and before.err or nil
if problem then
  redis.call('DEL', lock)
  return {problem}
end
if not before and epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
  redis.call('DEL', lock, fence)
  return {WIPED, epoch}
end
if not before and is_near then return proposal end
us = us or time[1] * 1000000 + time[2]
local nearest = math.min(math.max(tonumber(proposal), us - LIMIT_US), us + LIMIT_US)
local highest = math.max((tonumber(before or 0) or 0) + 1, nearest)
local token = string.format('%016.0f', highest)
if highest < 9e15 then
  problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
else
  problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
end
if not problem then problem = redis.pcall('SET', lock, string.sub(vote, 1, -17) .. token .. flag, 'PX', ttl).err end
if problem then
  if before then redis.pcall('SET', fence, before) else redis.pcall('DEL', fence) end
  redis.call('DEL', lock)
  return {problem}
end
return {token, 'at', us}`,
};

/**
 * Gives up a place in the queue of a lock; a lock that was handed over to it in the meantime goes to the next.
 */
export const WITHDRAW: Script = {
  name: 'withdraw',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 0,
  sha: '22d136eabef78ea919aae3457e2aac7bb5606637',
  source: `local us, minted
local fence = KEYS[1]
if #KEYS > 3 then
  local function each(lock, queue, owner, entry)
    local head
    if redis.pcall('ZREM', queue, entry) == 1 then
      head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
      if not head[1] then redis.pcall('DEL', queue) end
    end
    local value = redis.pcall('GET', lock)
    if type(value) ~= 'string' then
      if not value then return 0 end
      if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
      return -1
    end
    local mine = value and (string.sub(value, 1, -17) == owner
      or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
    if not mine then return 0 end
    local GRANT_TTL_MS = '2000'
    local SILENT_US = 2000000
    local MOST_UNKNOWN = 1000
    local PAGE = 100
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
      local kind, channel, ticket
      if next_entry then kind, channel, ticket = string.match(next_entry, '^([gw]) (%S+) (.+)$') end
      if next_entry and not kind and passed_over < MOST_UNKNOWN then
        passed_over = passed_over + 1
      elseif not kind then
        redis.call('DEL', lock)
        break
      else
        local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
        local heard_at, deaf_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
        local sign_at = math.max(heard_at, -(tonumber(signs[2]) or 0), deaf_at)
        if not us then
          local time = redis.call('TIME')
          us = time[1] * 1000000 + time[2]
        end
        if not latest and us - sign_at > SILENT_US then
          latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
        end
        local is_silent = latest and latest - sign_at > SILENT_US
        local is_last = not places[at] and passed_over == 0 -- all signs leave with it
        local left = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
        if left ~= 1 then
          redis.call('DEL', lock)
          break
        end
        local turns
        if kind == 'g' then
          local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
          if own_ticket then ticket, turns = own_ticket, own_turns end
        end
        local message, listeners = ticket, nil
        local is_blind = kind == 'g' and sign_at > heard_at
        local slot_tag = kind == 'g' and not is_blind and string.match(fence, '{%w+}$')
        if slot_tag then channel = channel .. ':' .. slot_tag end
        if is_silent then
          listeners = 0
        elseif kind == 'g' and not is_blind then
          listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
        end
        if kind == 'w' then
          redis.call('DEL', lock)
        elseif listeners ~= 0 then
          local count = tonumber(turns) or 1
          local MOST_AHEAD_US = 1000
          if not us then
            local time = redis.call('TIME')
            us = time[1] * 1000000 + time[2]
          end
          local first = math.max(us, (minted or 0) + 1)
          count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
          local token = string.format('%016.0f', first)
          local final = count == 1 and token or string.format('%016.0f', first + count - 1)
          local before = redis.pcall('SET', fence, final, 'GET')
          local problem = type(before) == 'table' and before.err or nil
          local counter = not problem and not minted and tonumber(before or 0)
          if counter and counter >= first then
            count = 1
            first = counter + 1
            local highest = first
            token = string.format('%016.0f', first)
            final = string.format('%016.0f', highest)
            if highest < 9e15 then
              problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
            else
              problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
            end
            if problem then redis.pcall('SET', fence, before) end
          end
          if not problem then minted = first + count - 1 end
          if problem or redis.pcall('SET', lock, ticket .. '@' .. final .. '+', 'PX', GRANT_TTL_MS).err then
            redis.call('DEL', lock)
          elseif is_blind or listeners then
            local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
            message = ticket .. ' ' .. token .. ' ' .. final .. ' ' .. bound
          end
        end
        if listeners ~= 0 then
          if is_blind and deaf_at == sign_at then break end
          local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
          if type(heard) == 'number' and (is_blind or heard > 0) then break end
        end
      end
    end
    return 1
  end
  local replies = {}
  for i = 0, (#KEYS - 1) / 2 - 1 do
    replies[i + 1] = each(KEYS[2 * i + 2], KEYS[2 * i + 3], ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  return replies
end
local lock, queue = KEYS[2], KEYS[3]
local owner, entry = ARGV[1], ARGV[2]
local head
if redis.pcall('ZREM', queue, entry) == 1 then
  head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  if not head[1] then redis.pcall('DEL', queue) end
end
local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  if not value then return 0 end
  if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
  return -1
end
local mine = value and (string.sub(value, 1, -17) == owner
  or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
if not mine then return 0 end
local GRANT_TTL_MS = '2000'
local SILENT_US = 2000000
local MOST_UNKNOWN = 1000
local PAGE = 100
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
  local kind, channel, ticket
  if next_entry then kind, channel, ticket = string.match(next_entry, '^([gw]) (%S+) (.+)$') end
  if next_entry and not kind and passed_over < MOST_UNKNOWN then
    passed_over = passed_over + 1
  elseif not kind then
    redis.call('DEL', lock)
    break
  else
    local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
    local heard_at, deaf_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
    local sign_at = math.max(heard_at, -(tonumber(signs[2]) or 0), deaf_at)
    if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end
    if not latest and us - sign_at > SILENT_US then
      latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
    end
    local is_silent = latest and latest - sign_at > SILENT_US
    local is_last = not places[at] and passed_over == 0 -- all signs leave with it
    local left = is_last and redis.pcall('DEL', queue) or redis.pcall('ZREM', queue, next_entry)
    if left ~= 1 then
      redis.call('DEL', lock)
      break
    end
    local turns
    if kind == 'g' then
      local own_ticket, own_turns = string.match(ticket, '^(.+)~(%d+)$')
      if own_ticket then ticket, turns = own_ticket, own_turns end
    end
    local message, listeners = ticket, nil
    local is_blind = kind == 'g' and sign_at > heard_at
    local slot_tag = kind == 'g' and not is_blind and string.match(fence, '{%w+}$')
    if slot_tag then channel = channel .. ':' .. slot_tag end
    if is_silent then
      listeners = 0
    elseif kind == 'g' and not is_blind then
      listeners = tonumber(redis.pcall('PUBSUB', slot_tag and 'SHARDNUMSUB' or 'NUMSUB', channel)[2])
    end
    if kind == 'w' then
      redis.call('DEL', lock)
    elseif listeners ~= 0 then
      local count = tonumber(turns) or 1
      local MOST_AHEAD_US = 1000
      if not us then
        local time = redis.call('TIME')
        us = time[1] * 1000000 + time[2]
      end
      local first = math.max(us, (minted or 0) + 1)
      count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
      local token = string.format('%016.0f', first)
      local final = count == 1 and token or string.format('%016.0f', first + count - 1)
      local before = redis.pcall('SET', fence, final, 'GET')
      local problem = type(before) == 'table' and before.err or nil
      local counter = not problem and not minted and tonumber(before or 0)
      if counter and counter >= first then
        count = 1
        first = counter + 1
        local highest = first
        token = string.format('%016.0f', first)
        final = string.format('%016.0f', highest)
        if highest < 9e15 then
          problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
        else
          problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
        end
        if problem then redis.pcall('SET', fence, before) end
      end
      if not problem then minted = first + count - 1 end
      if problem or redis.pcall('SET', lock, ticket .. '@' .. final .. '+', 'PX', GRANT_TTL_MS).err then
        redis.call('DEL', lock)
      elseif is_blind or listeners then
        local bound = places[at] and redis.pcall('ZMSCORE', queue, places[at])[1] or string.format('%.0f', us)
        message = ticket .. ' ' .. token .. ' ' .. final .. ' ' .. bound
      end
    end
    if listeners ~= 0 then
      if is_blind and deaf_at == sign_at then break end
      local heard = redis.pcall(slot_tag and 'SPUBLISH' or 'PUBLISH', channel, message)
      if type(heard) == 'number' and (is_blind or heard > 0) then break end
    end
  end
end
return 1`,
};
