import { defineScript } from './script.js';

/**
 * Asks a node of a Redlock since when it can be relied on to know all locks that it has granted. It keeps, in a key
 * of its own, since when that is, the longest ttl in use, and what it was when it was asked last; a node that lost its data
 * has lost that, too.
 */
export const ADMIT = defineScript({
  name: 'admit',
  order: 0,
  keys: ['guard'],
  args: ['run', 'uptime', 'longest'],
  body: `
  -- KEYS   guard
  -- ARGV   run: what changes with each start of the server that may have lost data, uptime in s, longest: ttl in ms
  -- reply  {epoch, ms since then, longest ttl in ms} | {error}
  local known = redis.pcall('GET', guard) or ''
  if type(known) == 'table' then return {known.err} end
  local since, told, knownRun = string.match(known, '^(%d+) (%d+) (.+)$')
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if not since then
    since = now
  elseif knownRun ~= run then
    since = now - uptime * 1000000
  end
  longest = math.max(tonumber(longest), tonumber(told or 0))
  local epoch = string.format('%.0f', since)
  local news = string.format('%s %.0f %s', epoch, longest, run)
  if news ~= known then
    local set = redis.pcall('SET', guard, news)
    if set.err then return {set.err} end
  end
  return {epoch, math.floor((now - since) / 1000), longest}`,
});
