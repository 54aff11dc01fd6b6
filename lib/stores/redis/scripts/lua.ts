// Generated from lua/ by generate.mjs (`npm run lua`): do not edit.
import { scriptOf } from './script.js';

const IS_MINE = `local mine = value and (string.sub(value, 1, -17) == owner
  or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))`;

const WRITE_COUNTER = `if highest < 9e15 then
  problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
else
  problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
end`;

const TAKE_FREE = `local token = reserved or now
local taken = redis.pcall('SET', lock, owner .. token, 'PX', ttl, 'NX')
if not taken then
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then return {value.err} end
  ${IS_MINE}
  if not mine then return {'refused', redis.call('PTTL', lock), value} end
  redis.call('PEXPIRE', lock, ttl)
  return string.match(value, '@(%d+)%+?$')
end
if taken.err then return {taken.err} end
if not reserved then
  local last = locks == 1 and now or string.format('%016.0f', tonumber(now) + locks - 1)
  local before = redis.pcall('SET', fence, last, 'GET')
  if before and (type(before) == 'table' or #before ~= 16 or before >= now) then
    local counter = type(before) == 'string' and tonumber(before)
    local problem = type(before) == 'table' and 'ERR the fencing counter ' .. fence .. ': ' .. before.err or nil
    if counter and counter >= tonumber(now) then
      token = string.format('%016.0f', counter + 1)
      local highest = counter + locks
      ${WRITE_COUNTER}
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
return token`;

const ASK_TIME = `if not us then
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
end`;

const COUNT_HOLDER = `holders.texts[#holders.texts + 1] = text
holders.count = holders.count + 1
holders.used = holders.used + weight
holders.smallest = math.min(holders.smallest, most)
if tonumber(finish) < holders.first then
  holders.first = tonumber(finish)
  holders.first_text = text
end
if tonumber(finish) > holders.last then
  holders.last = tonumber(finish)
  holders.last_text = text
end`;

const READ_HOLDERS = `local LOST_MS = 60000
local now = math.floor(us / 1000)
local left
local renewed = {}
local text_head = string.match(value or '', '^~p') or string.match(value or '', '^~s@%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d')
local is_together = text_head ~= nil
if is_together then
  holders = {kind = string.sub(text_head, 2, 2), head = text_head, texts = {}, count = 0, used = 0, smallest = 9e15, first = 9e15, last = 0}
  local at = #text_head + 1
  repeat
    local from, to, finish, weight, most, name = string.find(value, '^ (%d+) (%d+) (%d+) (%S+)', at)
    if not from then
      is_together = false
      break
    end
    at = to + 1
    local text = string.sub(value, from + 1, to)
    local is_live = tonumber(finish) >= now -- as Redis compares the expiry of keys
    if renews[name] and not renewed[name] then renewed[name] = is_live end
    if name == leaves then
      if is_live then left = 1 end
      left = left or 0
    elseif is_live then
      if renews[name] then
        finish = renews[name]
        text = finish .. ' ' .. weight .. ' ' .. most .. ' ' .. name
      end
      ${COUNT_HOLDER}
    elseif tonumber(finish) >= now - LOST_MS then
      holders.texts[#holders.texts + 1] = text
    end
  until at > #value
  if not is_together or holders.last == 0 then holders = nil end
end`;

const LEAVE_QUEUE = `if redis.pcall('ZREM', queue, entry) == 1 then
  head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  if not head[1] then redis.pcall('DEL', queue) end
end`;

const FITS = `local fits = not holders
  or (kind == holders.kind and (kind == 's' or holders.used + weight <= math.min(most, holders.smallest)))`;

const TAKE_PLACE = `local QUEUE_TTL_MS = '10000'
local is_new
if number ~= '' then
  is_new = redis.pcall('ZADD', queue, math.max(1, math.min(tonumber(number), us)), entry) == 1
else
  local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  is_new = redis.pcall('ZADD', queue, 'NX', math.max(us, (tonumber(last) or 0) + 1), entry) == 1
end
was_gone = is_new and placed == '1' and 1 or 0
if is_new then redis.pcall('ZREMRANGEBYSCORE', queue, QUEUE_TTL_MS * 1000 - us, '(0') end
local process = string.match(entry, '^%S+( %S+)')
local calls_at = math.max(math.floor(us / 1000000) - 1, 0) * 1000000 + math.min(tonumber(calls), 999999)
redis.pcall('ZADD', queue, -us, sign .. process, -calls_at, 'n' .. process)
redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
if value and #value > 17 and string.find(string.sub(value, -17), '^@%d+$') then
  redis.pcall('SET', lock, value .. '+', 'KEEPTTL')
end`;

const MINT = `local MAX_TOKEN_LEAD_US = 1000
${ASK_TIME}
local first = math.max(us, (minted or 0) + 1)
count = math.max(1, math.min(count, us + MAX_TOKEN_LEAD_US - first + 1))
local token = string.format('%016.0f', first)
local final = count == 1 and token or string.format('%016.0f', first + count - 1)
local before = redis.pcall('SET', fence, final, 'GET')
local problem = type(before) == 'table' and 'ERR the fencing counter ' .. fence .. ': ' .. before.err or nil
local counter = not problem and not minted and tonumber(before or 0)
if counter and counter >= first then
  count = 1
  first = counter + 1
  local highest = first
  token = string.format('%016.0f', first)
  final = string.format('%016.0f', highest)
  ${WRITE_COUNTER}
  if problem then redis.pcall('SET', fence, before) end
end
if not problem then minted = first + count - 1 end`;

const ADD_HOLDER = `if not holders then
  local text_head = kind == 's' and '~s@' .. token or '~p'
  holders = {kind = kind, head = text_head, texts = {}, count = 0, used = 0, smallest = 9e15, first = 9e15, last = 0, is_new = true}
end
holders.is_changed = true
local text = finish .. ' ' .. weight .. ' ' .. most .. ' ' .. name
${COUNT_HOLDER}
holders.has_grown = true`;

const SERVE = `local GRANT_TTL_MS = '2000'
local SILENT_US = 2000000
local MAX_UNKNOWN = 1000
local PAGE = 100
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
    ${FITS}
    local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel)
    local listening_at, not_listening_at = -(tonumber(signs[1]) or 0), -(tonumber(signs[3]) or 0)
    local sign_at = math.max(listening_at, -(tonumber(signs[2]) or 0), not_listening_at)
    ${ASK_TIME}
    if not latest and us - sign_at > SILENT_US then
      latest = math.min(us, -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0))
    end
    local is_silent = latest and latest - sign_at > SILENT_US
    local is_own = asking and next_entry == asking.entry
    local is_unverified = kind ~= 'w' and sign_at > listening_at
    local slot_tag = kind ~= 'w' and not is_unverified and string.match(fence, '{%w+}$')
    if slot_tag then channel = channel .. ':' .. slot_tag end
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
        ${MINT}
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
          ${ADD_HOLDER}
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
end`;

const WRITE_HOLDERS = `local text = holders.head .. ' ' .. table.concat(holders.texts, ' ')
local ttl_left = string.format('%.0f', math.max(1, holders.last - math.floor(us / 1000)))
if not holders.has_grown then redis.call('PEXPIRE', lock, ttl_left) end
holders.problem = redis.pcall('SET', lock, text, 'PX', ttl_left).err
if holders.problem and holders.is_new then redis.call('DEL', lock) end`;

const SETTLE = `if holders and holders.is_changed then
  ${WRITE_HOLDERS}
  if notices[1] and not holders.problem then
    local token = holders.kind == 's' and string.sub(holders.head, 4) or string.format('%016.0f', us)
    local next_place = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    local bound = next_place[2] or string.format('%.0f', us)
    for _, each in ipairs(notices) do
      local message = each.ticket .. ' ' .. token .. ' ' .. token .. ' ' .. bound .. ' ' .. lock
      redis.pcall(each.is_sharded and 'SPUBLISH' or 'PUBLISH', each.channel, message)
    end
  end
end`;

const NOT_A_STRING = `if not value then return 0 end
if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
return -1`;

const HAND_OFF = `local notices, is_blocked = {}, false
${SERVE}
${SETTLE}`;

const CAST_VOTE = `local MAX_PROPOSAL_DISTANCE_US = 1000000
local WIPED = 'wiped'
local proposal = string.sub(vote, -16)
local time = redis.call('TIME')
local us
local is_near = string.sub(proposal, 1, -7) == time[1] -- in the same second, which is the usual case
if not is_near then
  us = time[1] * 1000000 + time[2]
  is_near = math.abs(proposal - us) <= MAX_PROPOSAL_DISTANCE_US
end
local before
if is_near then before = redis.pcall('SET', fence, proposal, 'GET') else before = redis.pcall('GET', fence) end
if is_near and type(before) == 'string' and #before == 16 and before < proposal then return proposal end -- the usual case
local problem = type(before) == 'table' and 'ERR the fencing counter ' .. fence .. ': ' .. before.err or nil
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
local nearest = math.min(math.max(tonumber(proposal), us - MAX_PROPOSAL_DISTANCE_US), us + MAX_PROPOSAL_DISTANCE_US)
local highest = math.max((tonumber(before or 0) or 0) + 1, nearest)
local token = string.format('%016.0f', highest)
${WRITE_COUNTER}
if not problem then problem = redis.pcall('SET', lock, string.sub(vote, 1, -17) .. token .. flag, 'PX', ttl).err end
if problem then
  if before then redis.pcall('SET', fence, before) else redis.pcall('DEL', fence) end
  redis.call('DEL', lock)
  return {problem}
end
return {'at', token, us}`;

/**
 * Acquires a lock if it is free, and mints its fencing token. If the same owner value holds the lock already, the command has run
 * twice: the call counts as successful, the ttl restarts, and the token stays.
 */
export const ACQUIRE = scriptOf({
  name: 'acquire',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 1,
  keys: ['lock'],
  args: ['owner'],
  head: `local time = redis.call('TIME')
local now = string.format('%010d%06d', time[1], time[2])
local locks = #KEYS - 1
local reserved -- the token of the next lock, once this call has reserved tokens
local fence = KEYS[1]
local ttl = ARGV[1]`,
  body: `${TAKE_FREE}`,
});

/**
 * Acquires a lock if it is free and nobody waits for it, as acquire.lua does.
 */
export const ACQUIRE_IN_ORDER = scriptOf({
  name: 'acquire-in-order',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 1,
  keys: ['lock', 'queue'],
  args: ['owner'],
  head: `local time = redis.call('TIME')
local now = string.format('%010d%06d', time[1], time[2])
local locks = (#KEYS - 1) / 2
local reserved -- the token of the next lock, once this call has reserved tokens
local fence = KEYS[1]
local ttl = ARGV[1]`,
  body: `local first = redis.pcall('ZRANGE', queue, 0, 0)
if first[1] or first.err then return 'queue' end
${TAKE_FREE}`,
});

/**
 * Acquires a shared lock or permits, and releases in the same step what its process held. Either half can be left out. The caller
 * joins the holders if its request fits and no place is before it in the queue. Otherwise it takes a place in the queue, unless it
 * has one. The script then serves the queue as far as there is room.
 */
export const ACQUIRE_TOGETHER = scriptOf({
  name: 'acquire-together',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 1,
  isLong: true,
  keys: ['lock', 'queue'],
  args: ['give', 'owner', 'ttl', 'kind', 'weight', 'most', 'entry', 'number', 'placed', 'calls', 'others'],
  head: `local us, minted
local fence = KEYS[1]
local sign = ARGV[1]`,
  body: `local value = redis.pcall('GET', lock)
if type(value) == 'table' then
  if owner == '' and string.find(value.err, '^WRONGTYPE') then return -1 end
  return {value.err}
end
${ASK_TIME}
local holders, asking
local leaves, renews = give, {}
local finish = string.format('%.0f', math.floor(us / 1000) + ttl)
if owner ~= '' then renews[owner] = finish end
local names = {}
local from, to, other = string.find(others, '(%S+)', 1)
while from do
  names[#names + 1] = other
  renews[other] = finish
  from, to, other = string.find(others, '(%S+)', to + 1)
end
${READ_HOLDERS}
local is_foreign = value and not is_together -- one owner holds it, or another program wrote it
local gave = 0
if left == 1 then
  gave = 1
elseif give ~= '' and (holders or is_foreign) then
  gave = -1
end
if owner == '' and gave ~= 1 then return gave end
local is_granted = renewed[owner]
if holders then holders.is_changed = is_granted or gave == 1 end
local head = is_foreign and {} or redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
local was_gone = 0
if entry ~= '' and is_granted then
  ${LEAVE_QUEUE}
elseif entry ~= '' then
  ${FITS}
  if is_foreign or head[1] or not fits then
    ${TAKE_PLACE}
  end
end
local notices, is_blocked = {}, false
if head[1] or (owner == '' and not holders) then
  if entry ~= '' and not is_granted then asking = {entry = entry, finish = finish} end
  ${SERVE}
  if asking and asking.problem then return give == '' and {asking.problem} or {'failed', gave, asking.problem} end
  is_granted = is_granted or (asking and asking.is_granted)
end
local holder = is_foreign and value
if not is_foreign and not holders and head[1] then holder = redis.call('GET', lock) end -- serve.lua may have granted it to one owner alone
if owner ~= '' and not is_granted and not holder and not is_blocked then
  ${FITS}
  if fits then
    local phase
    if kind == 's' and not holders then
      local count = 1
      ${MINT}
      if problem then
        redis.call('DEL', lock)
        return give == '' and {problem} or {'failed', gave, problem}
      end
      phase = token
    end
    local name, token = owner, phase
    ${ADD_HOLDER}
    is_granted = true
    if head[1] and entry ~= '' then
      ${LEAVE_QUEUE}
    end
  end
end
if head[1] then
  head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
end
local joined = 0
local token -- nil: there are holders already, so add-holder.lua needs none
if is_granted then
  for _, name in ipairs(names) do
    ${FITS}
    if not renewed[name] then
      if head[1] or not fits then break end
      ${ADD_HOLDER}
    end
    joined = joined + 1
  end
end
${SETTLE}
if holders and holders.problem then
  if give == '' or not holders.is_new then return {holders.problem} end
  if owner ~= '' then return {'failed', gave, holders.problem} end
end
if owner == '' then return gave end
if is_granted then
  local token = kind == 's' and string.sub(holders.head, 4) or 0
  return {'granted', gave, us, token, joined, head[2] or us, holders.smallest}
end
if holders then
  local is_first = kind == holders.kind -- a caller of another kind has to wait for all holders
  local finish, text = is_first and holders.first or holders.last, is_first and holders.first_text or holders.last_text
  return {'refused', gave, us, finish - now, holders.head .. ' ' .. text, was_gone, holders.count - 1, holders.smallest}
end
return {'refused', gave, us, redis.call('PTTL', lock), holder, was_gone, 0, 0}`,
});

/**
 * Asks a node of a Redlock for the time since which it knows all locks that it granted. The node stores the answer in a
 * separate key, with the longest ttl in use and the run of the server that was asked last. A node that loses its data also loses this key.
 */
export const ADMIT = scriptOf({
  name: 'admit',
  order: 0,
  locksPerCall: 50,
  sharedKeys: 0,
  sharedArgs: 0,
  keys: ['admission'],
  args: ['run', 'uptime', 'longest'],
  head: ``,
  body: `local known = redis.pcall('GET', admission) or ''
if type(known) == 'table' then return {'ERR ' .. admission .. ': ' .. known.err} end
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
});

/**
 * Turns an exclusive lock into a shared one, with a new owner value and a new token for all who share it. Waiters for a shared lock at
 * the head of the queue join at once. If the new owner shares the lock already, the command has run twice: the call counts as
 * successful, the ttl restarts, and the token stays.
 */
export const DOWNGRADE = scriptOf({
  name: 'downgrade',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 0,
  isLong: true,
  keys: ['lock', 'queue'],
  args: ['owner', 'to', 'ttl'],
  head: `local us, minted
local fence = KEYS[1]`,
  body: `local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  ${NOT_A_STRING}
end
${ASK_TIME}
local holders, asking
local finish = string.format('%.0f', math.floor(us / 1000) + ttl)
local leaves, renews = '', {}
renews[to] = finish
${READ_HOLDERS}
if renewed[to] then
  ${WRITE_HOLDERS}
  return holders.problem and {holders.problem} or string.sub(holders.head, 4)
end
${IS_MINE}
if not mine then return -1 end
local kind, weight, most, name, count = 's', 1, 0, to, 1
${MINT}
if problem then return {problem} end
${ADD_HOLDER}
holders.is_new = false -- if the new value cannot be written, the exclusive lock stays
local notices, is_blocked = {}, false
${SERVE}
${SETTLE}
return holders.problem and {holders.problem} or string.sub(holders.head, 4)`,
});

/**
 * Restarts the ttl of a lock that its owner still holds.
 */
export const EXTEND = scriptOf({
  name: 'extend',
  order: 2,
  locksPerCall: 100,
  sharedKeys: 0,
  sharedArgs: 1,
  keys: ['lock'],
  args: ['owner'],
  head: `local ttl = ARGV[1]`,
  body: `local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  ${IS_MINE}
  return mine and redis.call('PEXPIRE', lock, ttl) or -1
end
${NOT_A_STRING}`,
});

/**
 * Extends a lock as extend.lua does, and records how many calls of the owner's process wait for it. Only people read that number.
 */
export const EXTEND_AND_REPORT = scriptOf({
  name: 'extend-and-report',
  order: 2,
  locksPerCall: 100,
  sharedKeys: 0,
  sharedArgs: 1,
  keys: ['lock', 'behind'],
  args: ['owner', 'calls', 'shown'],
  head: `local ttl = ARGV[1]`,
  body: `local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  ${IS_MINE}
  if not mine then return -1 end
  redis.call('PEXPIRE', lock, ttl)
  redis.pcall('SET', behind, owner .. calls, 'PX', shown)
  return 1
end
${NOT_A_STRING}`,
});

/**
 * Restarts the ttl of one of the owners that hold a lock together, and leaves the ttls of the others unchanged. The key lives until
 * the last of them expires.
 */
export const EXTEND_TOGETHER = scriptOf({
  name: 'extend-together',
  order: 2,
  locksPerCall: 100,
  sharedKeys: 0,
  sharedArgs: 1,
  keys: ['lock'],
  args: ['owner'],
  head: `local us
local ttl = ARGV[1]`,
  body: `local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  ${NOT_A_STRING}
end
local holders
local leaves, renews = '', {}
${ASK_TIME}
renews[owner] = string.format('%.0f', math.floor(us / 1000) + ttl)
${READ_HOLDERS}
if not is_together then return -1 end
if not holders or renewed[owner] == false then return 0 end
if not renewed[owner] then return -1 end
${WRITE_HOLDERS}
return holders.problem and {holders.problem} or 1`,
});

/**
 * Takes a lock away from all its holders, or from one owner only. The lock goes to the first place in its queue, or becomes free. The
 * process of each holder gets a message, if it listens.
 */
export const FORCE_RELEASE = scriptOf({
  name: 'force-release',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 1,
  isLong: true,
  keys: ['lock', 'queue'],
  args: ['key', 'from'],
  head: `local us, minted
local fence = KEYS[1]
local inbox = ARGV[1]`,
  body: `local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then
  if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
  value = ''
end
local taken -- the owners that lose it
local reply = {'alone', value}
local holders, asking
if string.sub(value, 1, 1) == '~' then
  local leaves, renews = from, {}
  ${ASK_TIME}
  ${READ_HOLDERS}
  if is_together and not holders and left ~= 1 then return 0 end -- all holds have expired
  if is_together then
    taken, reply = {}, {'together'}
    if left == 1 then taken[1] = from end
    if from == '' then
      for _, holder in ipairs(holders.texts) do
        local finish, name = string.match(holder, '^(%d+) %d+ %d+ (%S+)$')
        if tonumber(finish) >= now then taken[#taken + 1] = name end
      end
      holders = nil
    end
    if not taken[1] then return 0 end
    if holders then holders.is_changed = true end
  end
end
if not taken then
  if from ~= '' and (string.match(value, '^(.+)@%d+[+=]?$') or value) ~= from then return 0 end
  taken = {string.match(value, '^(.+)@%d+%+?$')}
end
for _, owner in ipairs(taken) do
  local TAKEN = 'taken'
  if reply[1] == 'together' then reply[#reply + 1] = owner end
  local process = string.match(owner, '^(.+)/[^/]+$')
  if process then
    local channel, message = inbox .. process, owner .. ' ' .. TAKEN .. ' ' .. key
    local slot_tag = string.match(fence, '{%w+}$') -- in a Cluster
    local heard = slot_tag and redis.pcall('SPUBLISH', channel .. ':' .. slot_tag, message)
    if type(heard) ~= 'number' or heard == 0 then redis.pcall('PUBLISH', channel, message) end
  end
end
${HAND_OFF}
if holders and holders.problem and not holders.is_new then return {holders.problem} end
return reply`,
});

/**
 * Reads a lock, and the first places in its queue.
 */
export const INSPECT = scriptOf({
  name: 'inspect',
  order: 4,
  locksPerCall: 5,
  sharedKeys: 0,
  sharedArgs: 0,
  keys: ['lock', 'queue', 'behind'],
  args: [],
  head: `local SILENT_US = 2000000
local MAX_PLACES = '100'`,
  body: `local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then return {value.err} end
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local owner, calls = string.match(tostring(redis.pcall('GET', behind)), '^(.+@)(%d+)$')
${IS_MINE}
local reply = {redis.call('PTTL', lock), value, us, mine and calls or ''}
if string.find(string.sub(value, -17), '^@%d+$') then return reply end -- the queue is empty
local latest = -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0)
for _, entry in ipairs(redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', MAX_PLACES)) do
  local channel, ticket = string.match(entry, '^[gsw] (%S+) (.+)$')
  if not ticket then channel, ticket = string.match(entry, '^p%d+/%d+ (%S+) (.+)$') end
  if ticket then
    local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel, 'n ' .. channel)
    local sign_at = 0
    for at = 1, 3 do sign_at = math.max(sign_at, -(tonumber(signs[at]) or 0)) end
    local is_silent = math.min(us, latest) - sign_at > SILENT_US
    if not is_silent then
      reply[#reply + 1] = string.match(ticket, '^(.+)~%d+$') or ticket
      reply[#reply + 1] = signs[4] or ''
    end
  end
end
return reply`,
});

/**
 * Keeps a lock for a given time after the work of its owner has ended. Until then nobody else can get it, and nothing extends it.
 */
export const KEEP = scriptOf({
  name: 'keep',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 0,
  sharedArgs: 0,
  keys: ['lock'],
  args: ['ttl', 'owner'],
  head: ``,
  body: `local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  if string.sub(value, 1, -17) ~= owner and string.sub(value, 1, -18) ~= owner then return -1 end
  local kept = redis.pcall('SET', lock, string.sub(value, 1, #owner + 16) .. '=', 'PX', ttl)
  return kept.err and {kept.err} or 1
end
${NOT_A_STRING}`,
});

/**
 * Raises the fencing counter of a lock to a token, if the owner still holds the lock. It never lowers the counter. A Redlock uses
 * this write-back to record a token on a majority of nodes before it issues the token. If the counter is missing, this node has lost
 * it since its vote. The script does not recreate it: only a vote may, because a vote checks that the node is admitted.
 */
export const RAISE_FENCE = scriptOf({
  name: 'raise-fence',
  order: 2,
  locksPerCall: 50,
  sharedKeys: 0,
  sharedArgs: 0,
  keys: ['lock', 'fence'],
  args: ['owner', 'token'],
  head: ``,
  body: `local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then return {value.err} end
local vote, flag = string.match(value, '@(%d+)(%+?)$')
if not vote or string.sub(value, 1, -17 - #flag) ~= owner or vote > token then return 0 end
local counter = redis.pcall('GET', fence)
if not counter then return 0 end
if type(counter) == 'table' then return {'ERR the fencing counter ' .. fence .. ': ' .. counter.err} end
local set = {}
if (tonumber(counter) or 0) < tonumber(token) then set = redis.pcall('SET', fence, token) end
if not set.err and vote ~= token then set = redis.pcall('SET', lock, owner .. token .. flag, 'KEEPTTL') end
return set.err and {set.err} or 1`,
});

/**
 * Releases a lock that its owner still holds: the lock goes to the first place in its queue, or becomes free. If the value does not
 * end in +, the queue is empty. The script also releases a kept lock, whose time may have ended before the server confirmed it.
 */
export const RELEASE = scriptOf({
  name: 'release',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 0,
  keys: ['lock', 'queue'],
  args: ['owner'],
  head: `local us, minted
local fence = KEYS[1]`,
  body: `local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  if string.sub(value, 1, -17) == owner then return redis.call('DEL', lock) end
  if string.sub(value, 1, -18) ~= owner then return -1 end
  local holders, asking
  ${HAND_OFF}
  return 1
end
${NOT_A_STRING}`,
});

/**
 * Extends a lock as extend.lua does, but writes it again if it is missing. Otherwise a node of a Redlock that has restarted would stay
 * without the lock. A restored lock does not count as held in this round.
 */
export const RESTORE = scriptOf({
  name: 'restore',
  order: 2,
  locksPerCall: 100,
  sharedKeys: 0,
  sharedArgs: 1,
  keys: ['lock'],
  args: ['owner', 'token'],
  head: `local ttl = ARGV[1]`,
  body: `local value = redis.pcall('GET', lock)
if not value then
  local set = redis.pcall('SET', lock, owner .. token .. '+', 'PX', ttl) -- with +, since its queue may still exist
  return set.err and {set.err} or 2
end
if type(value) == 'string' then
  ${IS_MINE}
  return mine and redis.call('PEXPIRE', lock, ttl) or -1
end
${NOT_A_STRING}`,
});

/**
 * Gives a lock a new owner, if the expected owner holds it, and mints a token on request. If the new owner holds the lock already, the
 * command has run twice: the call counts as successful, the ttl restarts, and the token stays. A longer remaining ttl can stay.
 */
export const TRANSFER = scriptOf({
  name: 'transfer',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 0,
  keys: ['lock'],
  args: ['from', 'to', 'ttl', 'mints', 'longer'],
  head: `local us, minted
local fence = KEYS[1]`,
  body: `local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  ${NOT_A_STRING}
end
local flag = string.sub(value, -1) == '+' and '+' or ''
local owner = string.sub(value, 1, -17 - #flag)
local latest = string.sub(value, -16 - #flag, -1 - #flag)
if longer == '1' then ttl = math.max(tonumber(ttl), redis.call('PTTL', lock)) end
if owner == to then
  redis.call('PEXPIRE', lock, ttl)
  return latest
end
if owner ~= from then return -1 end
if mints == '1' then
  local count = 1
  ${MINT}
  if problem then return {problem} end
  latest = final
end
local set = redis.pcall('SET', lock, to .. latest .. flag, 'PX', ttl)
return set.err and {set.err} or latest`,
});

/**
 * Acquires a lock for a waiter, and releases in the same step the lock of the same key that its process held. The waiter gets the
 * lock, with new tokens, if the lock is free or was handed over to it. Otherwise it takes a place in the queue, unless it has one. A
 * free lock always goes to the first place.
 */
export const TURN = scriptOf({
  name: 'turn',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 1,
  keys: ['lock', 'queue'],
  args: ['give', 'owner', 'ttl', 'count', 'entry', 'number', 'placed', 'calls'],
  head: `local us, minted
local fence = KEYS[1]
local sign = ARGV[1]`,
  body: `local value = redis.pcall('GET', lock)
if type(value) == 'table' then return {value.err} end
local gave = 0
if give ~= '' and value then
  local is_given = string.sub(value, 1, -17) == give or string.sub(value, 1, -18) == give
  gave = is_given and 1 or -1
  if is_given then value = false end
end
local holders, asking
if value and string.sub(value, 1, 1) == '~' then
  local leaves, renews = '', {}
  ${ASK_TIME}
  ${READ_HOLDERS}
  if is_together and not holders then value = false end -- all holds have expired
end
${IS_MINE}
${ASK_TIME}
local was_gone = 0
local head -- the first place, and its number
if not mine then
  local other_is_first
  if not value then
    head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    other_is_first = head[1] and head[1] ~= entry and not (number ~= '' and tonumber(number) < tonumber(head[2]))
  end
  if entry ~= '' and (value or other_is_first) then
    ${TAKE_PLACE}
  end
  if other_is_first or holders then
    ${HAND_OFF}
    head = nil
    value = redis.call('GET', lock)
    mine = value and string.sub(value, 1, -18) == owner
  end
end
if value and not mine then
  local left_ms = redis.call('PTTL', lock)
  local besides = 0
  if holders then value, besides = holders.head .. ' ' .. holders.last_text, holders.count - 1 end
  return {'refused', gave, us, left_ms, value, was_gone, besides}
end
count = tonumber(count)
${MINT}
if not problem then problem = redis.pcall('SET', lock, owner .. final .. '+', 'PX', ttl).err end
if entry ~= '' then
  ${LEAVE_QUEUE}
end
if problem then
  redis.call('DEL', lock)
  return give == '' and {problem} or {'failed', gave, problem}
end
if not head then head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES') end
return {'granted', gave, us, token, final, head[2] or us}`,
});

/**
 * Takes a free lock on one node of a Redlock, with the token that the client proposes, or one near it. If the same owner value holds
 * the lock already, the command has run twice: the call counts as successful, and the token stays.
 */
export const VOTE = scriptOf({
  name: 'vote',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 2,
  keys: ['lock', 'fence'],
  args: ['vote'],
  head: `local admission = KEYS[1]
local epoch, ttl = ARGV[1], ARGV[2]`,
  body: `local taken = redis.pcall('SET', lock, vote, 'PX', ttl, 'NX')
if not taken then
  local owner, value = string.sub(vote, 1, -17), redis.pcall('GET', lock)
  if type(value) == 'table' then return {value.err} end
  ${IS_MINE}
  if not mine then return {'refused', redis.call('PTTL', lock), value} end
  redis.call('PEXPIRE', lock, ttl)
  return string.match(value, '@(%d+)%+?$')
end
if taken.err then return {taken.err} end
local flag = ''
${CAST_VOTE}`,
});

/**
 * Attempts to acquire a lock for a waiter on one node of a Redlock. A free lock gets a vote as in vote.lua. Otherwise the waiter takes
 * a place in the queue, unless it has one, as in turn.lua. The clock of the node numbers the places.
 */
export const VOTE_OR_QUEUE = scriptOf({
  name: 'vote-or-queue',
  order: 3,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 2,
  keys: ['lock', 'fence', 'queue'],
  args: ['vote', 'entry', 'placed', 'calls'],
  head: `local us
local admission = KEYS[1]
local epoch, ttl = ARGV[1], ARGV[2]`,
  body: `local owner = string.sub(vote, 1, -17)
local value = redis.pcall('GET', lock)
if type(value) == 'table' then return {value.err} end
${IS_MINE}
if value and not mine then
  local was_gone = 0
  if entry ~= '' then
    local sign, number = 'h', ''
    ${ASK_TIME}
    ${TAKE_PLACE}
  end
  return {'refused', redis.call('PTTL', lock), value, was_gone}
end
if entry ~= '' then
  local head
  ${LEAVE_QUEUE}
end
if mine then
  redis.call('PEXPIRE', lock, ttl)
  return string.match(value, '@(%d+)%+?$')
end
local flag = '+'
local taken = redis.pcall('SET', lock, vote .. flag, 'PX', ttl)
if taken.err then return {taken.err} end
${CAST_VOTE}`,
});

/**
 * Gives up a place in the queue of a lock. If the lock was handed over to that place in the meantime, it goes to the next one. If
 * several owners hold the lock together, the places behind that place are served.
 */
export const WITHDRAW = scriptOf({
  name: 'withdraw',
  order: 1,
  locksPerCall: 50,
  sharedKeys: 1,
  sharedArgs: 0,
  isLong: true,
  keys: ['lock', 'queue'],
  args: ['owner', 'entry'],
  head: `local us, minted
local fence = KEYS[1]`,
  body: `local head
${LEAVE_QUEUE}
local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  ${NOT_A_STRING}
end
${IS_MINE}
local holders, asking
local gave = 1
if not mine then
  if string.sub(value, 1, 1) ~= '~' then return 0 end
  local leaves, renews = string.sub(owner, 1, -2), {}
  ${ASK_TIME}
  ${READ_HOLDERS}
  if not is_together then return 0 end
  gave = left or 0
  if holders then holders.is_changed = left ~= nil end
end
${HAND_OFF}
if holders and holders.problem and not holders.is_new then return {holders.problem} end
return gave`,
});
