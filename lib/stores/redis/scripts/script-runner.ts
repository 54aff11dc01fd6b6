import { performance } from 'node:perf_hooks';
import { nextTick, setImmediate } from '../../../core/time/event-loop.js';
import { LinkedList, type Linked } from '../../../core/time/linked-list.js';
import type { CommandFault, RedisClient, Route, ScriptCall } from '../client/redis-client.js';
import type { Script } from './script.js';
import { ScriptFault, scriptFaultOf } from './script-fault.js';

/** What a script answered for one operation. Numbers come as strings from clients with `stringNumbers`. */
export type Reply = number | string | (number | string)[];

/** What one caller asked for. */
interface Operation {
  read: (answer: Reply | ScriptFault) => unknown;
  /** Called with what was read. */
  done: (value: never) => void;
  failed: (reason: unknown) => void;
}

/** Learns whether the server answers. */
export interface ScriptRunnerListener {
  /**
   * A command was not answered in time.
   * @param isOpen whether it still is not
   */
  onOverdue(isOpen: () => boolean): void;
  /** The last overdue command was answered after all, or has failed. */
  onAnswering(): void;
}

export interface ScriptRunnerOptions {
  /** An answer counts only if its command was sent on the connection that it came on. @default false */
  sameConnection?: boolean;
  listener?: ScriptRunnerListener;
}

// The same for all: an error of its own for each would cost more than all else that is done while a server is down.
const STILL_OPEN = new ScriptFault('it does not answer (an earlier command is still in flight)', false);
const NOT_CONNECTED = new ScriptFault('not connected', false, true);

/**
 * Runs scripts on one client. What is asked for when nothing is under way is sent at once: batching delays nobody who is
 * alone. While the server is at work, what is asked for within one tick travels together, one EVALSHA for up to 50 locks,
 * or 100 to extend (in a Cluster: of the same slot), and is sent when one of these is complete, at the latest at the end
 * of the tick.
 *
 * A command that is not answered in time is not waited for, but it is remembered: until it settles nothing more is sent
 * the same way, so a server that hangs costs one time limit once, and has a bounded number of commands queued for it.
 */
export class ScriptRunner {
  readonly #client: RedisClient;
  readonly #timeoutMs: number;
  readonly #sameConnection: boolean;
  readonly #listener?: ScriptRunnerListener;
  /** What is to be sent by the end of this tick, by script and, in a Cluster, slot. */
  #gathered = new Map<Script | string, GatheredCommand>();
  /** What was sent and is not overdue, in the order it comes due: one timer serves all. */
  readonly #open = new LinkedList<Command>();
  #timer?: NodeJS.Timeout;
  /** The overdue commands, by each part of their route. */
  readonly #overdue = new Map<number | string, Set<Command>>();
  readonly #sendGathered = () => this.#flush();

  /** @param timeoutMs how long a command may take, in milliseconds */
  constructor(client: RedisClient, timeoutMs: number, { sameConnection = false, listener }: ScriptRunnerOptions = {}) {
    this.#client = client;
    this.#timeoutMs = timeoutMs;
    this.#sameConnection = sameConnection;
    this.#listener = listener;
  }

  /** Whether all that was sent has been answered. */
  get isAnswered(): boolean {
    return !this.#open.first && this.#overdue.size === 0;
  }

  /**
   * @param read called with the answers in the order in which the server gave them, which that of promises is not; or with
   *   why there is none: not connected, none in time, or an error of Redis
   * @returns what `read` makes of it
   */
  ask<T>(
    script: Script,
    keys: readonly string[],
    args: readonly (string | number)[],
    read: (answer: Reply | ScriptFault) => T | PromiseLike<T>,
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#gather(script, keys, args, { read, done: resolve, failed: reject });
    });
  }

  /**
   * Like `ask`, without a promise: `done` is called with what `read` makes of the answer, or of a fault, after this has
   * returned. Neither must throw.
   */
  run<T>(
    script: Script,
    keys: readonly string[],
    args: readonly (string | number)[],
    read: (answer: Reply | ScriptFault) => T,
    done: (value: T) => void,
  ): void {
    this.#gather(script, keys, args, { read, done, failed: throwLater });
  }

  #gather(script: Script, keys: readonly string[], args: readonly (string | number)[], operation: Operation): void {
    const route = this.#client.routeOf(keys[0]!);
    if (this.#overdue.size > 0 && route.some((part) => this.#isBlocked(part))) {
      void Promise.resolve().then(() => answered(operation, STILL_OPEN));
      return;
    }
    if (this.#gathered.size === 0) {
      if (!this.#open.first) {
        this.#send(new Command(script, route, [operation], keys, args, this));
        return;
      }
      nextTick(this.#sendGathered);
    }
    const id = this.#client.isCluster ? `${script.name}:${route[0]}` : script;
    let command = this.#gathered.get(id);
    if (!command) this.#gathered.set(id, (command = new Command(script, route, [], [], [], this) as GatheredCommand));
    command.operations.push(operation);
    for (const key of keys) command.keys.push(key);
    for (const arg of args) command.args.push(arg);
    // The server is at work while more is asked for: on all there is, or an acquire would be sent before a release.
    if (command.operations.length === script.locksPerCall) this.#flush();
  }

  #flush(): void {
    if (this.#gathered.size === 0) return; // sent before the end of the tick
    const commands = [...this.#gathered.values()];
    this.#gathered = new Map(); // one that is cleared drags its earlier tables along in old memory
    if (commands.length > 1) commands.sort((a, b) => a.script.order - b.script.order);
    for (const command of commands) this.#send(command);
  }

  #send(command: Command): void {
    // The offline queue of the client would send it whenever the server is back: too late for anybody.
    if (!this.#client.isReady) {
      void Promise.resolve().then(() => fail(command, NOT_CONNECTED));
      return;
    }
    command.generation = this.#client.generation;
    command.dueAt = performance.now() + this.#timeoutMs;
    this.#open.push(command);
    if (!this.#timer) this.#timer = setTimeout(() => this.#lookForOverdue(), this.#timeoutMs).unref();
    this.#client.run(command);
  }

  /** By a command, when the server has answered it. */
  answered(command: Command, answer: unknown): void {
    this.#settle(command); // before anybody acts on the answers
    // The client may send again what was open when a connection broke: then another server, or a new start, has answered.
    if (this.#sameConnection && command.generation !== this.#client.generation) {
      fail(command, new ScriptFault('answered on a different connection than the command was sent on', true));
      return;
    }
    const replies = command.operations.length === 1 ? [answer] : answer;
    if (!Array.isArray(replies) || replies.length !== command.operations.length || !replies.every(isReply)) {
      fail(command, new ScriptFault(`unexpected answer to the script ${command.script.name}`, true));
      return;
    }
    taken(command).forEach((operation, index) => {
      const reply = replies[index] as Reply;
      // A script that answers with an error has left things as they were.
      const isError = Array.isArray(reply) && reply.length === 1;
      answered(operation, isError ? new ScriptFault(String(reply[0]).replace(/\.$/, ''), false) : reply);
    });
  }

  /** By a command that has no answer. */
  failed(command: Command, fault: CommandFault): void {
    this.#settle(command);
    if (fault.kind === 'overdue') this.#pause(command);
    fail(command, scriptFaultOf(fault));
  }

  #settle(command: Command): void {
    if (command.list) {
      this.#open.remove(command);
      return;
    }
    this.#unblock(command.route, command);
    if (this.#overdue.size === 0) this.#listener?.onAnswering();
  }

  #lookForOverdue(): void {
    // After a pause of this process timers come first: what was answered meanwhile is read before it is given up.
    setImmediate(() => {
      const now = performance.now();
      for (let command = this.#open.first; command; command = this.#open.first) {
        if (command.dueAt > now) {
          this.#timer = setTimeout(() => this.#lookForOverdue(), Math.ceil(command.dueAt - now)).unref();
          return;
        }
        this.#open.remove(command);
        this.#block(command);
        this.#listener?.onOverdue(() => this.#overdue.get(command.route[0]!)?.has(command) ?? false);
        fail(command, new ScriptFault(`no answer within ${this.#timeoutMs} ms`, true));
      }
      this.#timer = undefined; // not before: what readers ask for meanwhile was looked at, too
    });
  }

  #isBlocked(part: number | string): boolean {
    const commands = this.#overdue.get(part);
    if (!commands) return false;
    if (this.#client.forgetsOpenCommands) {
      const { generation } = this.#client;
      for (const command of commands) if (command.generation !== generation) this.#unblock([part], command);
    }
    return commands.size > 0;
  }

  #block(command: Command): void {
    for (const part of command.route) {
      const commands = this.#overdue.get(part);
      if (commands) commands.add(command);
      else this.#overdue.set(part, new Set([command]));
    }
  }

  #unblock(route: Command['route'], command: Command): void {
    for (const part of route) {
      const commands = this.#overdue.get(part);
      if (commands?.delete(command) && commands.size === 0) this.#overdue.delete(part);
    }
  }

  /** Blocks the route for as long as a command may take. */
  #pause(command: Command): void {
    this.#block(command);
    setTimeout(() => this.#unblock(command.route, command), this.#timeoutMs).unref();
  }
}

function isReply(value: unknown): value is Reply {
  return typeof value === 'number' || typeof value === 'string' || Array.isArray(value);
}

/** One call of a script: open until the server has answered. */
class Command implements ScriptCall, Linked<Command> {
  /** The connection that it was sent on. */
  generation?: unknown;
  dueAt = 0;
  list?: { remove(command: Command): void };
  next?: Command;
  previous?: Command;

  constructor(
    readonly script: Script,
    readonly route: Route,
    public operations: Operation[],
    /** The keys of all its operations. */
    public keys: readonly string[],
    /** The arguments of all its operations. */
    public args: readonly (string | number)[],
    private readonly runner: ScriptRunner,
  ) {}

  /** A command whose operations were given up has not run where its script was unknown: it is not sent again. */
  get isWanted(): boolean {
    return this.operations.length > 0;
  }

  answered(reply: unknown): void {
    this.runner.answered(this, reply);
  }

  failed(fault: CommandFault): void {
    this.runner.failed(this, fault);
  }
}

/** A command that is still to be sent, and takes more operations. */
type GatheredCommand = Command & { keys: string[]; args: (string | number)[] };

const NOTHING: never[] = [];

/** A reader that throws must not keep the others of its command from their answers. */
function answered({ read, done, failed }: Operation, answer: Reply | ScriptFault): void {
  try {
    done(read(answer) as never);
  } catch (error) {
    failed(error);
  }
}

/** Becomes an unhandled rejection: it is a bug. */
function throwLater(error: unknown): void {
  void Promise.reject(error);
}

/** None of its operations has an answer. */
function fail(command: Command, fault: ScriptFault): void {
  for (const operation of taken(command)) answered(operation, fault);
}

/** Its operations, which are answered now: what may live on in old memory for a while should hold little. */
function taken(command: Command): Operation[] {
  const { operations } = command;
  command.operations = command.keys = command.args = NOTHING;
  return operations;
}
