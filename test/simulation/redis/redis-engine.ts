import { LuaError, numberText, Table, type LuaValue, type RedisOfScripts } from '../lua/values.js';
import { COMMANDS, TAKING_MEMORY, WRITING } from './commands.js';
import { RedisData, type Script, type Subscriber } from './redis-data.js';
import { OUT_OF_MEMORY, READ_ONLY } from './refusals.js';
import { endedBy, fromLua, ReplyError, toLua, type Reply } from './replies.js';

/**
 * A Redis server, as far as the library uses one: strings and sorted sets that expire, scripts,
 * publish/subscribe. It has no network: `execute` runs one command and returns its reply.
 */
export class RedisEngine {
  readonly #redis: RedisOfScripts = {
    call: (line, args) => {
      const reply = this.#executeOfScript(args);
      if (reply instanceof ReplyError) throw new LuaError(new Table([], { err: reply.text }), line);
      return toLua(reply);
    },
    pcall: (_line, args) => toLua(this.#executeOfScript(args)),
  };

  /** Whether the running script has changed anything; undefined while none runs. */
  #hasWritten?: boolean;

  /** @param onCommand called with each command that runs, also in scripts */
  constructor(
    readonly data: RedisData,
    private readonly onCommand?: (name: string, args: readonly string[]) => void,
    /** The reason to refuse a command, if there is one, also in scripts. */
    private readonly refusalOf?: (name: string) => ReplyError | undefined,
    /** The reason why a script may not run a command, if there is one. */
    private readonly refusalOfScript?: (name: string, args: readonly string[]) => ReplyError | undefined,
  ) {}

  /** Runs a command. @returns undefined when the reply was pushed */
  execute(args: readonly string[], subscriber?: Subscriber): Reply | undefined {
    const [name = ''] = args;
    switch (name.toUpperCase()) {
      case 'EVAL':
        return this.#evaluate(args, () => this.data.load(args[1]!));
      case 'EVALSHA':
        return this.#evaluate(args, () => this.data.scripts.get(args[1]!.toLowerCase()));
      default:
        return this.#command(args, subscriber);
    }
  }

  #command(args: readonly string[], subscriber?: Subscriber): Reply | undefined {
    const [name = '', ...rest] = args;
    const command = COMMANDS[name.toUpperCase()];
    if (!command) return new ReplyError(`ERR unknown command '${name}'`);
    const { least, most = Infinity, run } = command;
    if (rest.length < least || rest.length > most)
      return new ReplyError(`ERR wrong number of arguments for '${name.toLowerCase()}' command`);
    const refusal = this.refusalOf?.(name);
    if (refusal) return refusal;
    if (this.data.isReadOnly && WRITING.has(name.toUpperCase())) return READ_ONLY;
    if (!this.#hasMemoryFor(name.toUpperCase())) return OUT_OF_MEMORY;
    this.onCommand?.(name, rest);
    return run(this.data, rest, subscriber);
  }

  /** A full server no longer refuses a script that has begun to write. */
  #hasMemoryFor(name: string): boolean {
    if (TAKING_MEMORY.has(name) && !this.#hasWritten && !this.data.isReplica && this.data.isFull) return false;
    if (this.#hasWritten !== undefined) this.#hasWritten ||= WRITING.has(name);
    return true;
  }

  #executeOfScript(args: readonly LuaValue[]): Reply {
    if (args.length === 0) return new ReplyError('ERR Please specify at least one argument for this redis.call() call');
    const texts: string[] = [];
    for (const arg of args) {
      if (typeof arg === 'string') texts.push(arg);
      else if (typeof arg === 'number') texts.push(argumentOf(arg));
      else return new ReplyError('ERR Lua redis lib command arguments must be strings or integers');
    }
    return this.refusalOfScript?.(texts[0]!, texts.slice(1)) ?? this.#command(texts) ?? null;
  }

  #evaluate([, , count, ...args]: readonly string[], find: () => Script | undefined): Reply {
    if (count === undefined) return new ReplyError("ERR wrong number of arguments for 'eval' command");
    if (!/^\d+$/.test(count)) return new ReplyError('ERR value is not an integer or out of range');
    const keys = Number(count);
    if (keys > args.length) return new ReplyError("ERR Number of keys can't be greater than number of args");
    const script = find();
    if (!script) return new ReplyError('NOSCRIPT No matching script. Please use EVAL.');
    const [KEYS, ARGV] = [new Table(args.slice(0, keys)), new Table(args.slice(keys))];
    this.#hasWritten = false;
    try {
      return fromLua(this.data.inOneStep(() => script.run(this.#redis, KEYS, ARGV)));
    } catch (error) {
      if (error instanceof LuaError) return endedBy(error, script.sha);
      throw error; // of the simulation itself
    } finally {
      this.#hasWritten = undefined;
    }
  }
}

/**
 * A number that a script gives to Redis: all versions write whole numbers alike, but not others (`%.17g`, or as short
 * as possible), so no script may depend on that.
 */
function argumentOf(number: number): string {
  const text = numberText(number, 17);
  if (Number.isSafeInteger(number) || text === numberText(number, 15)) return text;
  throw new Error(`A script gives the number ${text} to Redis, which its versions write in different ways.`);
}
