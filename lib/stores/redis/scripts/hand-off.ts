import { MINT } from './fence.js';

/** How long a lock that was handed over waits for its new holder to confirm, in milliseconds. */
export const GRANT_TTL_MS = 2_000;

/**
 * How a place is served. A `grant` is for somebody who hears of it, or the next is served. A `blind-grant` stands until it
 * runs out, for those who do not listen yet, and in a Cluster, where PUBLISH counts the listeners of one node only. A `wake`
 * is for a Redlock, where no node alone can grant.
 */
export type Service = 'grant' | 'blind-grant' | 'wake';

const KINDS: Record<Service, string> = { grant: 'g', 'blind-grant': 'b', wake: 'w' };

/**
 * What stands in the queue of a lock: how to serve it, the channel that its process listens to, and its ticket, which is
 * what is published there, with a fencing token if the lock was granted to it. A lock that is granted holds the ticket as
 * its owner value.
 */
export function queueEntry(service: Service, channel: string, ticket: string): string {
  return `${KINDS[service]} ${channel} ${ticket}`;
}

/** What is published to the process whose lock was taken by force: the owner value, this word, and the key. */
export const TAKEN = 'taken';

/** What is published to a process. */
export interface Message {
  /** Or the owner value that a lock was taken from. */
  ticket: string;
  /** Of the grant, if one was minted that an acquisition could have, too. */
  fencingToken?: number;
  /** The lock was taken by force. */
  takenKey?: string;
}

export function readMessage(text: string): Message {
  const [ticket = '', token, ...key] = text.split(' ');
  if (token === TAKEN) return { ticket, takenKey: key.join(' ') };
  const fencingToken = Number(token);
  return Number.isSafeInteger(fencingToken) && fencingToken > 0 ? { ticket, fencingToken } : { ticket };
}

/**
 * Lua that passes a lock that is given back to the first in its `queue`, or deletes it, and returns. A process
 * that does not hear its message is gone, so the next is served. Listeners are counted before they are told of a grant:
 * replicas pass messages on to some that are not counted here, and whoever is passed over must not begin. Where that may not
 * be asked for, the grant is told without a token, so it is confirmed first.
 */
export function handOff(reply = ''): string {
  return `
    local entry = redis.pcall('ZPOPMIN', queue)[1]
    if entry then
      ${MINT}
      repeat
        local kind, channel, ticket = string.match(entry, '^(%a) (%S+) (.+)$')
        local message, listeners = ticket, nil
        if kind == '${KINDS.wake}' then
          redis.call('DEL', lock)
        elseif not kind or redis.pcall('SET', lock, ticket, 'PX', '${GRANT_TTL_MS}').err then
          break
        else
          if kind == '${KINDS.grant}' then listeners = tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel)[2]) end
          local token = (kind == '${KINDS['blind-grant']}' or (listeners or 0) > 0) and mint()
          if token then message = string.format('%s %.0f', ticket, token) end
        end
        if listeners ~= 0 then
          local heard = redis.pcall('PUBLISH', channel, message)
          if kind == '${KINDS['blind-grant']}' or (type(heard) == 'number' and heard > 0) then return ${reply} end
        end
        entry = redis.pcall('ZPOPMIN', queue)[1]
      until not entry
    end
    redis.call('DEL', lock)
    return ${reply}`;
}
