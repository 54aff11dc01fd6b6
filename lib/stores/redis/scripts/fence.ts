/** A fencing counter outlives its last use by a day, in milliseconds. */
export const FENCE_TTL_MS = 86_400_000;

/** The reply of a Redlock node that has lost its data since it was let vote begins with this word. */
export const WIPED = 'wiped';

/**
 * When a new token takes the server's time in microseconds, which is more than any counter has reached.
 *
 * `always` when the time is ahead of the counter, which it is unless grants are less than a microsecond apart: so tokens grow
 * on when the counter was lost, and also when it is that of a replica that had not received the last grants before it took over.
 *
 * `absent` only when there is no counter, or one that the node may have from an older snapshot, for the nodes of a Redlock:
 * their token is the highest of a majority of counters, and known to that majority at once when these are equal.
 *
 * Stays below 2^53 until the year 2255.
 */
export type Clocking = 'always' | 'absent';

/** What a script needs beside the lock that mints tokens with this clocking. */
export function guardOf(clocking: Clocking): { keys: string[]; args: string[]; header: string } {
  return clocking === 'always'
    ? { keys: [], args: [], header: '' }
    : { keys: ['guard'], args: ['epoch', 'votes_from'], header: GUARD_HEADER };
}

const GUARD_HEADER = `-- and      guard of the node; epoch in which it votes, since when it does, in us; or '', ''`;
const NO_COUNTER = `'ERR fencing counter is not an integer'`;
/** Lua: `us`, the time of the server in microseconds, is asked for once in a call of the script. */
export const ASK_TIME = `if not us then
      local time = redis.call('TIME')
      us = time[1] * 1000000 + time[2]
    end`;
const setFence = (value: string, option = '') =>
  `redis.pcall('SET', fence, ${value}, 'PX', '${FENCE_TTL_MS}'${option})`;
const giveUp = (error: string) => `redis.call('DEL', lock)
      return {${error}}`;

/** Lua: `mint()` mints one fencing token by the clock; nil for a counter that is no number, which stays as it is. */
export const MINT = `local function mint()
  ${mintByTheClock('1', () => 'return nil')}
end`;

/**
 * The end of a script that was granted `lock`: mints fencing tokens, and replies with the first. If that fails, the lock is
 * given up. Where counters are clocked when they are absent it is one, and the script has the `guard` of its node, the
 * `epoch` in which that was let vote, and the time that it `votes_from`, or ''.
 * @param count Lua: how many
 */
export function mintTokens(count: string, clocking: Clocking): string {
  return clocking === 'always' ? mintByTheClock(count, giveUp) : COUNT_ON;
}

/** @param failed Lua that returns with an error */
function mintByTheClock(count: string, failed: (error: string) => string): string {
  return `
    -- The time is nearly always ahead: so it is set first, and what was there before is looked at afterwards. A whole
    -- number below 2^53 is written out in full.
    ${ASK_TIME}
    local last = ${setFence(count === '1' ? 'us' : `us + ${count} - 1`, ", 'GET'")}
    if not last then return us end
    if type(last) == 'table' then
      ${failed('last.err')}
    end
    local number = tonumber(last)
    if not number then
      ${setFence('last')}
      ${failed(NO_COUNTER)}
    end
    if number < us then return us end
    local again = ${setFence(`number + ${count}`)}
    if again.err then
      ${failed('again.err')}
    end
    return number + 1`;
}

/**
 * A counter at or above the time from which the node votes was made since: whoever made it was let vote, so the guard is not
 * asked. One below it may be of an older snapshot, which does not know the last tokens, so it is seeded anew like one that is
 * absent. No counter from before the restart is above it, as long as clocks differ by less than the longest ttl.
 */
const COUNT_ON = `
    local token = redis.pcall('INCRBY', fence, '1')
    if type(token) == 'table' then
      ${giveUp(`'fencing counter: ' .. token.err`)}
    end
    if token < math.max(1e15, tonumber(votes_from) or 0) then
      if epoch ~= '' and string.match(tostring(redis.pcall('GET', guard)), '^%d+') ~= epoch then
        redis.call('DEL', lock)
        if token == 1 then redis.call('DEL', fence) end
        return {'${WIPED}', epoch}
      end
      ${ASK_TIME}
      if us > token then token = us end
      local set = ${setFence('token')}
      if set.err then
        ${giveUp('set.err')}
      end
    else
      redis.call('PEXPIRE', fence, '${FENCE_TTL_MS}')
    end
    return token`;
