/** A fencing counter outlives its last use by a day, in milliseconds. */
export const FENCE_TTL_MS = 86_400_000;

/**
 * The end of a script that was granted `lock`: mints as many fencing tokens as the Lua expression `count` says, and
 * replies with the first. A counter that is no number gives the lock up.
 *
 * A counter that is absent starts at the server's time in microseconds: above anything the old one can have reached,
 * so tokens grow on even when the server restarted empty. Stays below 2^53 until the year 2255.
 */
export const mintTokens = (count: string) => `
  local last = redis.pcall('INCRBY', fence, ${count})
  if type(last) ~= 'number' then
    redis.call('DEL', lock)
    return {last.err}
  end
  if last < 1e15 then
    local time = redis.call('TIME')
    last = time[1] * 1000000 + time[2] + ${count} - 1
    redis.call('SET', fence, string.format('%.0f', last), 'PX', ${FENCE_TTL_MS})
  else
    redis.call('PEXPIRE', fence, '${FENCE_TTL_MS}')
  end
  return last - ${count} + 1`;
