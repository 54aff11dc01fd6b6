/** A fencing counter outlives its last use by a day, in milliseconds. */
export const FENCE_TTL_MS = 86_400_000;

/** The reply of a Redlock node that has lost its data since it was let vote begins with this word. */
export const WIPED = 'wiped';

/** Lua: `server_us()` is the time of the server in microseconds, asked for once in a call of the script. */
export const SERVER_TIME = `local us
local function server_us()
  if not us then
    local time = redis.call('TIME')
    us = time[1] * 1000000 + time[2]
  end
  return us
end`;

/**
 * When a new token takes the server's time in microseconds, which is more than any counter has reached.
 *
 * `always` when the time is ahead of the counter, which it is unless grants are less than a microsecond apart: so tokens grow
 * on when the counter was lost, and also when it is that of a replica that had not received the last grants before it took over.
 *
 * `absent` only when there is no counter, for the nodes of a Redlock: their token is the highest of a majority of counters,
 * and known to that majority at once when these are equal.
 *
 * Stays below 2^53 until the year 2255.
 */
export type Clocking = 'always' | 'absent';

/** What a script needs beside the lock that mints tokens with this clocking. */
export function guardOf(clocking: Clocking): { keys: string[]; args: string[]; header: string } {
  return clocking === 'always'
    ? { keys: [], args: [], header: '' }
    : { keys: ['guard'], args: ['epoch'], header: `-- and      guard of the node; epoch in which it votes, or ''` };
}

const NO_COUNTER = `'ERR fencing counter is not an integer'`;
const giveUp = (error: string) => `redis.call('DEL', lock)
    return {${error}}`;
const setFence = (value: string, option = '') =>
  `redis.pcall('SET', fence, ${value}, 'PX', '${FENCE_TTL_MS}'${option})`;

/**
 * Lua: `mint(fence, count)` mints so many fencing tokens by the clock, and returns the first; or nil and the error, for a
 * counter that is no number, which stays as it is. Needs `SERVER_TIME`.
 */
export const MINT = `local function mint(fence, count)
  -- The time is nearly always ahead: so it is set first, and what was there before is looked at afterwards. A whole
  -- number below 2^53 is written out in full.
  local first = server_us()
  local last = ${setFence('first + count - 1', ", 'GET'")}
  if not last then return first end
  if type(last) == 'table' then return nil, last.err end
  local number = tonumber(last)
  if not number then
    ${setFence('last')}
    return nil, ${NO_COUNTER}
  end
  if number < first then return first end
  local again = ${setFence('number + count')}
  if again.err then return nil, again.err end
  return number + 1
end`;

/**
 * The end of a script that was granted `lock`: mints as many fencing tokens as the Lua expression `count` says, and
 * replies with the first. If that fails, the lock is given up. Where counters are clocked when they are absent, the script
 * has the `guard` of its node and the `epoch` in which that was let vote, or ''. Needs `SERVER_TIME`, and by the clock
 * `MINT`.
 */
export function mintTokens(count: string, clocking: Clocking): string {
  return clocking === 'always' ? mintByTheClock(count) : mintByCounting(count);
}

function mintByTheClock(count: string): string {
  return `
  local first, fault = mint(fence, ${count})
  if not first then
    ${giveUp('fault')}
  end
  return first`;
}

function mintByCounting(count: string): string {
  // Whoever counted here since the node lost its data was let vote: only where nobody has, the guard is asked.
  return `
  local last = redis.pcall('GET', fence)
  local first = tonumber(last or 0)
  if not first then
    ${giveUp(`type(last) == 'table' and last.err or ${NO_COUNTER}`)}
  end
  first = first + 1
  if first < 1e15 then
    if epoch ~= '' and string.match(tostring(redis.pcall('GET', guard)), '^%d+') ~= epoch then
      redis.call('DEL', lock)
      return {'${WIPED}', epoch}
    end
    if server_us() > first then first = server_us() end
  end
  local set = ${setFence(`first + ${count} - 1`)}
  if set.err then
    ${giveUp('set.err')}
  end
  return first`;
}
