import type { Lease, LeaseState, LockBackend, LockHandle } from './library.js';
import { MODE_MUTANTS } from './mode-mutants.js';
import { interceptCommands, replaceSource, type Mutant } from './mutant.js';

/** The library, broken in one way each: the simulation must find all of them. */
export const MUTANTS: Readonly<Record<string, Mutant>> = {
  ...MODE_MUTANTS,
  'release-without-owner-check': {
    what: 'a release frees the lock, even for another owner',
    inject({ RELEASE }) {
      interceptCommands(RELEASE, HELD_BY_WHO_RELEASES);
    },
  },
  'deadline-from-the-reply': {
    what: 'a lease counts from when its answer came',
    inject({ Clock, ServerBackend, RedlockBackend }) {
      const { now } = new Clock();
      for (const backend of [ServerBackend, RedlockBackend].map(({ prototype }): LockBackend => prototype)) {
        const { acquire, extend } = backend;
        backend.acquire = function (request, done) {
          acquire.call(this, request, (outcome) =>
            done(outcome.status === 'acquired' ? { ...outcome, sentAt: now() } : outcome),
          );
        };
        backend.extend = function (request, done) {
          extend.call(this, request, (outcome) =>
            done(outcome.status === 'extended' ? { ...outcome, sentAt: now() } : outcome),
          );
        };
      }
    },
  },
  'restarted-node-votes-at-once': {
    what: 'a node that came back without its keys votes (admission: false)',
    options: { admission: false },
    nodes: 3,
  },
  'token-without-write-back': {
    what: 'a Redlock gives a token that no majority of its nodes knows',
    inject({ RedisNode }) {
      RedisNode.prototype.raiseFence = () => Promise.resolve({ status: 'raised' });
      // One node votes ahead of the others, like a node whose clock is ahead, so that there is something to write back.
      const others: object[] = [];
      const { vote } = RedisNode.prototype;
      RedisNode.prototype.vote = function (request, admission, value, done) {
        if (others.length < 2 && !others.includes(this)) others.push(this);
        vote.call(this, request, admission, others.includes(this) ? moved(value, -900_000) : value, done);
      };
    },
    nodes: 3,
  },
  'counter-not-seeded': {
    what: 'a counter that was lost starts again at 1',
    inject({ ACQUIRE, TURN, RELEASE_AND_TURN, RELEASE, WITHDRAW, FORCE_RELEASE }) {
      for (const script of [ACQUIRE, TURN, RELEASE_AND_TURN, RELEASE, WITHDRAW, FORCE_RELEASE])
        interceptCommands(script, FIRST_MICROSECOND);
    },
  },
  'vote-not-kept': {
    what: 'a Redlock node votes for a token, and does not keep it in its counter',
    inject({ RedisNode, VOTE, VOTE_OR_QUEUE }) {
      for (const script of [VOTE, VOTE_OR_QUEUE]) interceptCommands(script, COUNTER_NOT_WRITTEN);
      // Processes propose different tokens at the same time, as with different clocks.
      const aheadUs = ((process.pid % 3) - 1) * 400_000;
      const { vote } = RedisNode.prototype;
      RedisNode.prototype.vote = function (request, admission, value, done) {
        vote.call(this, request, admission, moved(value, aheadUs), done);
      };
    },
    nodes: 3,
  },
  'cohort-after-the-loss': {
    what: 'a process passes a lock on for as long as it has tokens, and does not find that it was lost',
    inject({ EXTEND, RESTORE, Line }) {
      for (const script of [EXTEND, RESTORE]) replaceSource(script, ALWAYS_EXTENDED);
      const { giveBack } = Line.prototype;
      Line.prototype.giveBack = function (lease, done) {
        Object.defineProperty(lease, 'deadline' satisfies keyof Lease, { value: Infinity, configurable: true });
        return giveBack.call(this, lease, done);
      };
    },
    options: { cohortMs: 60_000 },
  },
  'subscription-never-doubted': {
    what: 'a process waits for messages on a connection that the server has closed',
    inject({ PlainInbox }) {
      PlainInbox.prototype.check = () => {};
    },
  },
  'refusals-in-microtasks': {
    what: 'a refusal is settled before the event loop has run',
    inject({ RefusalGate }) {
      RefusalGate.prototype.settle = (_reason, settle) => queueMicrotask(settle);
    },
  },
  'replica-is-kept': {
    what: 'the connection to a server that has become a replica is kept',
    inject({ RedisConnection }) {
      RedisConnection.prototype.leaveReplica = () => 'Its server is a replica.';
    },
  },
  'taken-by-force-and-passed-on': {
    what: 'a process passes on a lock that it has taken away by force, and nobody hears of it',
    inject({ RedisNode }) {
      const { forceRelease } = RedisNode.prototype;
      RedisNode.prototype.forceRelease = async function (key) {
        return (await forceRelease.call(this, key)) && { from: [] };
      };
      const { listen } = RedisNode.prototype;
      RedisNode.prototype.listen = function (key, listener) {
        const { onTurn, onMayBeFree } = listener;
        listen.call(this, key, {
          onTurn: onTurn.bind(listener),
          onMayBeFree: onMayBeFree.bind(listener),
          onTaken: () => {},
          onWarning: () => {},
        });
      };
    },
  },
  'extension-that-always-counts': {
    what: 'an extension counts, also if another owner or nobody holds the lock',
    inject({ EXTEND, RESTORE }) {
      for (const script of [EXTEND, RESTORE]) replaceSource(script, ALWAYS_EXTENDED);
    },
  },
  'held-until-the-timer': {
    what: 'a lock counts as held until a timer has run',
    inject({ Lease: { prototype } }) {
      const ended = new WeakMap<Lease, LeaseState>();
      const { release, lose } = prototype;
      prototype.release = function () {
        const wasHeld = release.call(this);
        if (wasHeld) ended.set(this, 'released');
        return wasHeld;
      };
      prototype.lose = function (reason) {
        const wasHeld = lose.call(this, reason);
        if (wasHeld) ended.set(this, 'lost');
        return wasHeld;
      };
      prototype.checkState = function () {
        return ended.get(this) ?? 'held';
      };
    },
  },
  'leader-releases-first': {
    what: 'the lock of a leader is released before its work has ended',
    inject({ Term: { prototype } }) {
      const { close } = prototype;
      prototype.close = function () {
        const { demands } = this.lease;
        while (demands.calls > 1) demands.leave(demands.longestTtlMs); // calls of the work do not count
        void this['lock'].release();
        return close.call(this);
      };
    },
  },
  'set-in-the-order-of-the-caller': {
    what: 'several locks are waited for one after the other, as the caller names them',
    inject({ LockService: { prototype }, LockSetHandle }) {
      prototype.acquireAll = async function (keys, options) {
        const held: LockHandle[] = [];
        try {
          for (const key of keys) held.push((await this.acquire(key, options)) as LockHandle);
        } catch (error) {
          for (const lock of held) void lock.release();
          throw error;
        }
        return new LockSetHandle(held);
      };
    },
  },
  'set-keeps-what-it-gives-back': {
    what: 'a set that is refused keeps the locks that were free',
    inject({ LockService: { prototype }, LockSetHandle }) {
      const { acquireAll } = prototype;
      prototype.acquireAll = async function (keys, options) {
        const tried = await Promise.all(keys.map((key) => this.tryAcquire(key)));
        const held = tried.filter((lock) => lock !== null) as LockHandle[];
        return held.length === keys.length ? new LockSetHandle(held) : acquireAll.call(this, keys, options);
      };
    },
  },
  'lock-without-ttl': {
    what: 'a lock is set without a ttl',
    inject({ ACQUIRE, VOTE, TURN, RELEASE_AND_TURN, VOTE_OR_QUEUE }) {
      for (const script of [ACQUIRE, VOTE, TURN, RELEASE_AND_TURN, VOTE_OR_QUEUE])
        interceptCommands(script, SET_WITHOUT_TTL);
    },
  },
};

/**
 * Lua: each lock is held by the caller that releases it. The keys of a release are the counter, then lock and queue of
 * each; its arguments are the owners, with their @.
 */
const HELD_BY_WHO_RELEASES = `
  local value, lock = call(command, ...), ...
  if command ~= 'GET' or type(value) ~= 'string' then return value end
  local token = string.match(value, '@(%d+%+?)$')
  for i, owner in ipairs(ARGV) do
    if token and KEYS[2 * i] == lock then return owner .. token end
  end`;

/** Lua: a whole script that takes the keys and arguments of an extension, for one lock or for several. */
const ALWAYS_EXTENDED = `
-- KEYS   lock; of each
-- ARGV   ttl in ms, once a call; what stands behind it is of no account
local replies = {}
for i, lock in ipairs(KEYS) do
  redis.call('PEXPIRE', lock, ARGV[1])
  replies[i] = 1
end
return #KEYS == 1 and 1 or replies`;

/** Lua: the server's time is the first microsecond of all. */
const FIRST_MICROSECOND = `if command == 'TIME' then return {0, 1} end`;

/** Lua: the counter of a vote, the only key that is set without a ttl, stays as it is. */
const COUNTER_NOT_WRITTEN = `
  local key, _, option = ...
  if command == 'SET' and option == 'GET' then return call('GET', key) end
  if command == 'SET' and not option then return {ok = 'OK'} end`;

/** Lua: values that are set with a ttl are set without one. */
const SET_WITHOUT_TTL = `
  local key, value, px, ttl, option = ...
  if command == 'SET' and px == 'PX' then
    if option then return call('SET', key, value, option) end
    return call('SET', key, value)
  end`;

/** The value of a lock with another token, this many microseconds later. */
function moved(value: string, us: number): string {
  return value.slice(0, -16) + String(Number(value.slice(-16)) + us);
}
