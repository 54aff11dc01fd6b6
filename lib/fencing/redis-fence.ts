import { createHash } from 'node:crypto';
import { LockOptionsError } from '../api/errors.js';
import { checkKey } from '../core/keys/key.js';
import { printable } from '../api/printable.js';
import { DAY_MS, milliseconds, invalidOption } from '../core/options/checks.js';
import { isClient, isNodeRedisClient } from '../stores/redis/client/check-source.js';
import type { IoredisClient, NodeRedisClient } from '../stores/redis/client/source.js';
import type { FenceStore } from './fence-store.js';
import { checkFencingToken } from './fencing-token.js';
import { StaleTokenError } from './stale-token.error.js';

/**
 * Stores tokens as the given digits, since printing a number in Lua would round it. It compares them as numbers, which is exact
 * below 2^53.
 */
const SOURCE = `
-- KEYS   token: the highest that was seen, value
-- ARGV   token, ms to remember it at least (0: for ever) [, value, its ttl in ms (0: none)]
-- reply  {1} it is not older, and the value is written | {0, the newer token that was seen} | an error
local seen = redis.call('GET', KEYS[1])
if seen then
  local highest = tonumber(seen)
  if not highest then return redis.error_reply('ERR the fencing token that was kept is not a number') end
  if highest > tonumber(ARGV[1]) then return {0, seen} end
end
local remember, left = tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])
if remember == 0 or left == -1 then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', string.format('%.0f', math.max(remember, left)))
end
if ARGV[4] == '0' then
  redis.call('SET', KEYS[2], ARGV[3])
elseif ARGV[4] then
  redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
end
return {1}`;

const SHA = createHash('sha1').update(SOURCE).digest('hex');
const checkMs = milliseconds(1, 2 ** 47);

/** Settings of a `RedisFence`. */
export interface RedisFenceOptions {
  /** First part of its keys, 1 to 200 characters without braces: `<keyPrefix>:{<key>}:token` and `:value`. @default 'fenced' */
  keyPrefix?: string;
  /**
   * Time to keep a token after its last use, in milliseconds: longer than any writer can be late. The token of a value is kept at
   * least as long as the value.
   * @default 86400000
   */
  rememberMs?: number;
}

/**
 * Keeps values in Redis that only the newest holder of a lock can write, and the highest fencing token of each key. If Redis loses
 * data, in a restart or a failover to a replica that lags behind, a late writer can get through.
 *
 * The fence neither changes nor closes the client, whose own time limits apply. A command that is sent late does no harm: the fence
 * refuses it.
 */
export class RedisFence implements FenceStore {
  readonly #client: Commands;
  readonly #prefix: string;
  readonly #rememberMs: number;

  /**
   * @param client a client of ioredis, or a connected client of node-redis
   * @throws LockOptionsError
   */
  constructor(
    client: IoredisClient | NodeRedisClient,
    { keyPrefix = 'fenced', rememberMs = DAY_MS }: RedisFenceOptions = {},
  ) {
    if (!isClient(client)) {
      throw new LockOptionsError(
        'A RedisFence needs a client of ioredis, or a connected client of node-redis 5.10 or later, for one server or a Cluster.',
      );
    }
    // A brace would change the hash tag, and move the two keys to different slots of a Cluster.
    if (typeof keyPrefix !== 'string' || !/^[^{}]{1,200}$/.test(keyPrefix)) {
      throw invalidOption('keyPrefix of a RedisFence', keyPrefix, 'a string of 1 to 200 characters without braces');
    }
    checkMs('rememberMs', rememberMs);
    this.#client = isNodeRedisClient(client) ? commandsOf(client) : client;
    this.#prefix = keyPrefix;
    this.#rememberMs = rememberMs;
  }

  /** @throws the error of the client */
  async raise(key: string, fencingToken: number): Promise<boolean> {
    return (await this.#run(key, [checked(fencingToken), this.#rememberMs])) === undefined;
  }

  /**
   * Writes a value unless a newer token was seen for its key.
   * @param options ttlMs: milliseconds to keep the value; forever by default
   * @throws StaleTokenError if it was not written
   * @throws the error of the client; the value may have been written then
   */
  async write(key: string, fencingToken: number, value: string, { ttlMs }: { ttlMs?: number } = {}): Promise<void> {
    if (typeof value !== 'string') {
      throw invalidOption('the value that a RedisFence keeps', value, 'a string');
    }
    if (ttlMs !== undefined) checkMs('ttlMs', ttlMs);
    const rememberMs = ttlMs === undefined ? 0 : Math.max(ttlMs, this.#rememberMs);
    const seen = await this.#run(key, [checked(fencingToken), rememberMs, value, ttlMs ?? 0]);
    if (seen !== undefined) throw new StaleTokenError(fencingToken, { key, resource: 'the value in Redis', seen });
  }

  /** Reads the value of a key. @returns `null` if there is none */
  async read(key: string): Promise<string | null> {
    return this.#client.get(this.#keysOf(key)[1]);
  }

  /** @returns undefined if the token passed, otherwise the newer one */
  async #run(key: string, args: (string | number)[]): Promise<number | undefined> {
    const keys = this.#keysOf(key);
    const reply = await this.#client.evalsha(SHA, 2, ...keys, ...args).catch((error: unknown) => {
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
      return this.#client.eval(SOURCE, 2, ...keys, ...args);
    });
    // A client with `stringNumbers` returns strings.
    const [passed, seen] = Array.isArray(reply) ? reply.map(Number) : [];
    if (passed === 1) return undefined;
    if (passed === 0 && seen !== undefined) return seen;
    throw new Error(`Redis answered unexpectedly to the script of a RedisFence: ${printable(JSON.stringify(reply))}.`);
  }

  #keysOf(key: string): [token: string, value: string] {
    checkKey(key);
    return [`${this.#prefix}:{${key}}:token`, `${this.#prefix}:{${key}}:value`];
  }
}

/** The commands that it needs, as ioredis has them. */
interface Commands {
  get(key: string): Promise<string | null>;
  evalsha(sha: string, keyCount: number, ...keysAndArgs: (string | number)[]): Promise<unknown>;
  eval(source: string, keyCount: number, ...keysAndArgs: (string | number)[]): Promise<unknown>;
}

function commandsOf(client: NodeRedisClient): Commands {
  const { GET, EVALSHA, EVAL } = client as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
  const split = (keyCount: number, all: (string | number)[]) => {
    const [keys, args] = [all.slice(0, keyCount), all.slice(keyCount).map(String)];
    return { keys, arguments: args };
  };
  return {
    get: (key) => GET!.call(client, key) as Promise<string | null>,
    evalsha: (sha, keyCount, ...all) => EVALSHA!.call(client, sha, split(keyCount, all)),
    eval: (source, keyCount, ...all) => EVAL!.call(client, source, split(keyCount, all)),
  };
}

function checked(fencingToken: number): string {
  checkFencingToken(fencingToken);
  return String(fencingToken);
}
