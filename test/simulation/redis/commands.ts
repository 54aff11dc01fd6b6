import { numberText } from '../lua/values.js';
import type { Entry, RedisData, Subscriber } from './redis-data.js';
import { OK, ReplyError, Status, type Reply } from './replies.js';
import { SortedSet, type Bound } from './sorted-set.js';

/** A command of Redis, without its name. */
interface Command {
  /** The number of its arguments. */
  readonly least: number;
  readonly most?: number;
  /** @returns undefined when the reply was pushed */
  run(redis: RedisData, args: readonly string[], subscriber?: Subscriber): Reply | undefined;
}

const WRONG_TYPE = new ReplyError('WRONGTYPE Operation against a key holding the wrong kind of value');
const SYNTAX = new ReplyError('ERR syntax error');
const NO_INTEGER = new ReplyError('ERR value is not an integer or out of range');
const NOT_POSITIVE = new ReplyError('ERR value is out of range, must be positive');
const NO_FLOAT = new ReplyError('ERR value is not a valid float');
const NO_RANGE = new ReplyError('ERR min or max is not a float');

/** The commands that scripts, connections and tests use. A missing one answers like an unknown command. */
export const COMMANDS: Readonly<Record<string, Command>> = {
  GET: {
    least: 1,
    most: 1,
    run(redis, [key]) {
      const entry = redis.entry(key!);
      if (!entry) return null;
      return typeof entry.value === 'string' ? entry.value : WRONG_TYPE;
    },
  },
  SET: { least: 2, run: set },
  INCR: { least: 1, most: 1, run: incr },
  DEL: {
    least: 1,
    run(redis, keys) {
      const existing = [...new Set(keys)].filter((key) => redis.entry(key) !== undefined);
      for (const key of existing) redis.change(key, undefined);
      return existing.length;
    },
  },
  TYPE: {
    least: 1,
    most: 1,
    run: (redis, [key]) => new Status(typeOf(redis.entry(key!))),
  },
  PTTL: {
    least: 1,
    most: 1,
    run(redis, [key]) {
      const entry = redis.entry(key!);
      if (!entry) return -2;
      return entry.expiresAt === undefined ? -1 : Math.max(0, entry.expiresAt - redis.ms);
    },
  },
  PEXPIRE: {
    least: 2,
    most: 2,
    run: (redis, [key, text]) => expire(redis, key!, integer(text!), redis.ms),
  },
  PEXPIREAT: {
    least: 2,
    most: 2,
    run: (redis, [key, text]) => expire(redis, key!, integer(text!), 0),
  },
  TIME: {
    least: 0,
    most: 0,
    run: ({ timeUs }) => [String(Math.floor(timeUs / 1e6)), String(timeUs % 1e6)],
  },
  ZADD: { least: 3, run: zadd },
  ZREM: {
    least: 2,
    run: (redis, [key, ...members]) => ofSet(redis, key!, 0, (set) => redis.removeFrom(key!, set, members)),
  },
  ZREMRANGEBYSCORE: {
    least: 3,
    most: 3,
    run(redis, [key, from, to]) {
      const range = rangeOf(from!, to!);
      if (!range) return NO_RANGE;
      const names = (set: SortedSet) => set.within(...range).map(([member]) => member);
      return ofSet(redis, key!, 0, (set) => redis.removeFrom(key!, set, names(set)));
    },
  },
  ZMSCORE: {
    least: 2,
    run(redis, [key, ...members]) {
      const scores = (set?: SortedSet) => members.map((member) => scoreText(set?.score(member)));
      return ofSet(redis, key!, scores(), scores);
    },
  },
  ZRANGE: { least: 3, run: zrange },
  PUBLISH: {
    least: 2,
    most: 2,
    run: (redis, [channel, text]) => redis.publish(redis.channels, 'message', channel!, text!),
  },
  SPUBLISH: {
    least: 2,
    most: 2,
    run: (redis, [channel, text]) => redis.publish(redis.shardChannels, 'smessage', channel!, text!),
  },
  SUBSCRIBE: { least: 1, run: (redis, names, subscriber) => subscribe(redis.channels, 'subscribe', names, subscriber) },
  SSUBSCRIBE: {
    least: 1,
    run: (redis, names, subscriber) => subscribe(redis.shardChannels, 'ssubscribe', names, subscriber),
  },
  PSUBSCRIBE: {
    least: 1,
    run(redis, patterns, subscriber) {
      for (const pattern of patterns) {
        const { patterns: all } = redis;
        if (!all.has(pattern)) all.set(pattern, { isMeant: glob(pattern), subscribers: new Set() });
        all.get(pattern)!.subscribers.add(subscriber!);
        subscriber!.push(['psubscribe', pattern, 1]);
      }
      return undefined;
    },
  },
  PUBSUB: {
    least: 1,
    run(redis, [kind, ...names]) {
      const all = { CHANNELS: redis.channels, SHARDCHANNELS: redis.shardChannels }[kind!.toUpperCase()];
      if (all) {
        const isMeant = glob(names[0] ?? '*');
        return [...all].flatMap(([name, { size }]) => (size > 0 && isMeant.test(name) ? [name] : []));
      }
      const channels = { NUMSUB: redis.channels, SHARDNUMSUB: redis.shardChannels }[kind!.toUpperCase()];
      return channels ? names.flatMap((name) => [name, channels.get(name)?.size ?? 0]) : SYNTAX;
    },
  },
  SCAN: { least: 1, run: scan },
  KEYS: {
    least: 1,
    most: 1,
    run(redis, [pattern]) {
      const isMeant = glob(pattern!);
      return redis.names.filter((key) => isMeant.test(key));
    },
  },
  EXISTS: { least: 1, run: (redis, keys) => keys.filter((key) => redis.entry(key) !== undefined).length },
  DBSIZE: { least: 0, most: 0, run: (redis) => redis.names.length },
  MGET: {
    least: 1,
    run: (redis, keys) =>
      keys.map((key) => {
        const value = redis.entry(key)?.value;
        return typeof value === 'string' ? value : null;
      }),
  },
  PERSIST: {
    least: 1,
    most: 1,
    run(redis, [key]) {
      const entry = redis.entry(key!);
      if (entry?.expiresAt === undefined) return 0;
      redis.change(key!, { value: entry.value });
      return 1;
    },
  },
  ZCOUNT: {
    least: 3,
    most: 3,
    run(redis, [key, from, to]) {
      const range = rangeOf(from!, to!);
      return range ? ofSet(redis, key!, 0, (set) => set.within(...range).length) : NO_RANGE;
    },
  },
  CONFIG: { least: 2, run: config },
  DEBUG: {
    least: 2,
    run(redis, [kind, count, prefix = 'key', size = '0']) {
      const [keys, bytes] = [integer(count!), integer(size)];
      if (kind!.toUpperCase() !== 'POPULATE') return SYNTAX;
      if (keys === undefined || bytes === undefined || keys < 0 || bytes < 0) return NOT_POSITIVE;
      redis.applying(() => populate(redis, keys, prefix, bytes)); // replicas do not get it
      return OK;
    },
  },
  FLUSHALL: {
    least: 0,
    run(redis) {
      redis.flush();
      return OK;
    },
  },
  SCRIPT: {
    least: 1,
    run(redis, [kind, source]) {
      if (kind!.toUpperCase() === 'LOAD' && source !== undefined) return redis.load(source).sha;
      if (kind!.toUpperCase() === 'EXISTS' && source !== undefined) return [redis.scripts.has(source) ? 1 : 0];
      if (kind!.toUpperCase() !== 'FLUSH') return SYNTAX;
      redis.scripts.clear();
      return OK;
    },
  },
};

/** The commands that a full server refuses. */
export const TAKING_MEMORY: ReadonlySet<string> = new Set(['INCR', 'SET', 'ZADD']);
/** The commands that change keys, or may do so. */
export const WRITING: ReadonlySet<string> = new Set([
  ...TAKING_MEMORY,
  ...['DEL', 'FLUSHALL', 'PERSIST', 'PEXPIRE', 'PEXPIREAT', 'ZREM', 'ZREMRANGEBYSCORE'],
]);

function typeOf(entry: Entry | undefined): string {
  if (!entry) return 'none';
  return typeof entry.value === 'string' ? 'string' : 'zset';
}

/** @param absent the reply if there is no such key */
function ofSet(redis: RedisData, key: string, absent: Reply, run: (set: SortedSet) => Reply): Reply {
  const value = redis.entry(key)?.value;
  if (value === undefined) return absent;
  return value instanceof SortedSet ? run(value) : WRONG_TYPE;
}

/** @param sinceMs when the time begins, in milliseconds since 1970 */
function expire(redis: RedisData, key: string, ms: number | undefined, sinceMs: number): Reply {
  if (ms === undefined) return NO_INTEGER;
  const entry = redis.entry(key);
  if (!entry) return 0;
  const expiresAt = sinceMs + ms;
  // On a replica only the primary may do that: it will delete the key.
  redis.change(key, expiresAt > redis.ms || redis.isReplica ? { ...entry, expiresAt } : undefined);
  return 1;
}

function set(redis: RedisData, [key, value, ...options]: readonly string[]): Reply {
  let [expiresAt, condition]: [number | undefined, string | undefined] = [undefined, undefined];
  let [returnsOld, keepsTtl] = [false, false];
  for (let at = 0; at < options.length; at++) {
    const option = options[at]!.toUpperCase();
    if ((option === 'PX' || option === 'PXAT') && expiresAt === undefined && !keepsTtl && at + 1 < options.length) {
      const ms = integer(options[++at]!);
      if (ms === undefined) return NO_INTEGER;
      expiresAt = option === 'PX' ? redis.ms + ms : ms;
      if (ms <= 0) return new ReplyError("ERR invalid expire time in 'set' command");
    } else if ((option === 'NX' || option === 'XX') && (condition ?? option) === option) condition = option;
    else if (option === 'GET') returnsOld = true;
    else if (option === 'KEEPTTL' && expiresAt === undefined) keepsTtl = true;
    else return SYNTAX;
  }
  const before = redis.entry(key!);
  if (returnsOld && before && typeof before.value !== 'string') return WRONG_TYPE;
  const old = typeof before?.value === 'string' ? before.value : null;
  const isRefused = condition !== undefined && (before === undefined) !== (condition === 'NX');
  if (!isRefused) {
    redis.change(key!, { value: value!, expiresAt: keepsTtl ? before?.expiresAt : expiresAt });
  }
  if (returnsOld) return old;
  return isRefused ? null : OK;
}

function incr(redis: RedisData, [key]: readonly string[]): Reply {
  const before = redis.entry(key!);
  const text = before?.value ?? '0';
  if (typeof text !== 'string') return WRONG_TYPE;
  if (!/^(?:0|-?[1-9]\d*)$/.test(text) || BigInt.asIntN(64, BigInt(text)) !== BigInt(text)) return NO_INTEGER;
  const next = BigInt(text) + 1n;
  if (next !== BigInt.asIntN(64, next)) return new ReplyError('ERR increment or decrement would overflow');
  redis.change(key!, { value: String(next), expiresAt: before?.expiresAt });
  return Number(next);
}

function zadd(redis: RedisData, [key, ...rest]: readonly string[]): Reply {
  const options = new Set<string>();
  let at = 0;
  for (; /^(nx|xx)$/i.test(rest[at] ?? ''); at++) options.add(rest[at]!.toUpperCase());
  if ((rest.length - at) % 2 > 0 || rest.length === at) return SYNTAX;
  if (options.size > 1) return new ReplyError('ERR XX and NX options at the same time are not compatible');
  const scores: [member: string, score: number][] = [];
  for (; at < rest.length; at += 2) {
    const score = float(rest[at]!);
    if (score === undefined) return NO_FLOAT;
    scores.push([rest[at + 1]!, score]);
  }
  const before = redis.entry(key!);
  const members = before?.value ?? new SortedSet();
  if (!(members instanceof SortedSet)) return WRONG_TYPE;
  const added = new Set<string>();
  const changed: typeof scores = [];
  for (const [member, score] of scores) {
    const isNew = members.score(member) === undefined && !added.has(member);
    if (isNew ? options.has('XX') : options.has('NX')) continue;
    if (isNew) added.add(member);
    changed.push([member, score]);
  }
  if (changed.length > 0) redis.addTo(key!, members, changed);
  return added.size;
}

function zrange(redis: RedisData, [key, from, to, ...options]: readonly string[]): Reply {
  let [byScore, withScores] = [false, false];
  let limit: readonly [number, number] | undefined;
  for (let at = 0; at < options.length; at++) {
    const option = options[at]!.toUpperCase();
    if (option === 'BYSCORE') byScore = true;
    else if (option === 'WITHSCORES') withScores = true;
    else if (option === 'LIMIT' && at + 2 < options.length) {
      const [offset, count] = [integer(options[++at]!), integer(options[++at]!)];
      if (offset === undefined || count === undefined) return NO_INTEGER;
      limit = [offset, count];
    } else return SYNTAX;
  }
  if (limit && !byScore)
    return new ReplyError('ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX');
  const pick = byScore ? byScores(from!, to!, limit) : byRanks(from!, to!);
  if (pick instanceof ReplyError) return pick;
  return ofSet(redis, key!, [], (set) =>
    pick(set).flatMap(([member, score]) => (withScores ? [member, scoreText(score)] : [member])),
  );
}

type Pick = (set: SortedSet) => SortedSet['members'];

function byScores(from: string, to: string, [offset, count]: readonly [number, number] = [0, -1]): Pick | ReplyError {
  const range = rangeOf(from, to);
  if (!range) return NO_RANGE;
  return (set) => (offset < 0 ? [] : set.within(...range).slice(offset, count < 0 ? undefined : offset + count));
}

function byRanks(from: string, to: string): Pick | ReplyError {
  const [first, last] = [integer(from), integer(to)];
  if (first === undefined || last === undefined) return NO_INTEGER;
  return ({ members }) => {
    const fromEnd = (rank: number) => (rank < 0 ? members.length + rank : rank);
    return members.slice(Math.max(0, fromEnd(first)), Math.max(0, fromEnd(last) + 1));
  };
}

/** In the order in which the keys came; the cursor is the number of the next one. */
function scan(redis: RedisData, [cursor, ...options]: readonly string[]): Reply {
  let [pattern, type]: [RegExp | undefined, string | undefined] = [undefined, undefined];
  let count: number | undefined = 10;
  for (let at = 0; at < options.length; at += 2) {
    const [option, value] = [options[at]!.toUpperCase(), options[at + 1]];
    if (value === undefined) return SYNTAX;
    if (option === 'MATCH') pattern = glob(value);
    else if (option === 'COUNT') count = integer(value);
    else if (option === 'TYPE') type = value;
    else return SYNTAX;
  }
  const from = integer(cursor!);
  if (from === undefined) return new ReplyError('ERR invalid cursor');
  if (count === undefined) return NO_INTEGER;
  if (count < 1) return SYNTAX;
  const { names, next = 0 } = redis.part(from, count);
  const isMeant = (key: string) => (!pattern || pattern.test(key)) && (!type || typeOf(redis.entry(key)) === type);
  return [String(next), names.filter(isMeant)];
}

/**
 * Creates keys that do not exist yet, for a server with many keys.
 * @param bytes the length of each value; 0: any
 */
function populate(redis: RedisData, keys: number, prefix: string, bytes: number): void {
  for (let number = 0; number < keys; number++) {
    const [key, value] = [`${prefix}:${number}`, `value:${number}`];
    if (redis.entry(key)) continue;
    redis.change(key, { value: bytes === 0 ? value : value.slice(0, bytes).padEnd(bytes, '\0') });
  }
}

function subscribe(
  channels: Map<string, Set<Subscriber>>,
  kind: string,
  names: readonly string[],
  subscriber: Subscriber | undefined,
): undefined {
  if (!subscriber) throw new Error(`${kind} was sent by nobody who could be answered.`);
  for (const name of names) {
    const subscribers = channels.get(name) ?? new Set();
    channels.set(name, subscribers.add(subscriber));
    subscriber.push([kind, name, 1]);
  }
}

function config({ settings }: RedisData, [kind, ...rest]: readonly string[]): Reply {
  if (kind!.toUpperCase() === 'GET') {
    const isMeant = glob(rest[0]!);
    return [...settings].filter(([name]) => isMeant.test(name)).flat();
  }
  if (kind!.toUpperCase() !== 'SET') return new ReplyError(`ERR unknown subcommand '${kind}'. Try CONFIG HELP.`);
  if (rest.length < 2) return new ReplyError("ERR wrong number of arguments for 'config|set' command");
  if (rest.length % 2 > 0) return SYNTAX;
  const names = rest.filter((_, at) => at % 2 === 0);
  const unknown = names.find((name) => !settings.has(name.toLowerCase()));
  if (unknown !== undefined)
    return new ReplyError(`ERR Unknown option or number of arguments for CONFIG SET - '${unknown}'`);
  for (const [at, name] of names.entries()) settings.set(name.toLowerCase(), rest[2 * at + 1]!);
  return OK;
}

function integer(text: string): number | undefined {
  return /^(?:0|-?[1-9]\d*)$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined;
}

function float(text: string): number | undefined {
  if (/^[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?$/i.test(text)) return Number(text);
  const infinite = /^([-+]?)inf(?:inity)?$/i.exec(text);
  return infinite ? (infinite[1] === '-' ? -Infinity : Infinity) : undefined;
}

function scoreText(score: number): string;
function scoreText(score: number | undefined): string | null;
function scoreText(score: number | undefined): string | null {
  return score === undefined ? null : numberText(score, 17);
}

/** A range of scores such as `-inf (5`; undefined if it is not valid. */
function rangeOf(from: string, to: string): readonly [Bound, Bound] | undefined {
  const [min, max] = [boundOf(from), boundOf(to)];
  return min && max && [min, max];
}

function boundOf(text: string): Bound | undefined {
  const isExclusive = text.startsWith('(');
  const number = isExclusive ? text.slice(1) : text;
  const score = number === '' ? 0 : float(number); // as strtod of C reads it
  return score === undefined ? undefined : { score, isExclusive };
}

/** A glob of Redis. */
function glob(pattern: string): RegExp {
  const expression = pattern.replace(/\\(.)|\[(\^?)([^\]]*)\]|[^]/g, (sign, escaped, negation = '', set) => {
    if (escaped !== undefined) return literal(escaped);
    if (set !== undefined) return `[${negation}${String(set).replace(/[\\\]]/g, '\\$&')}]`;
    if (sign === '*') return '[^]*';
    return sign === '?' ? '[^]' : literal(sign);
  });
  return new RegExp(`^${expression}$`);
}

const literal = (character: string): string => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`;
