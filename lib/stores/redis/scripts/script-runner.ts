import { performance } from 'node:perf_hooks';
import { nextTick, setImmediate } from '../../../core/time/event-loop.js';
import { LinkedList, type Linked } from '../../../core/time/linked-list.js';
import type { CommandFault, RedisClient, Route, ScriptCall } from '../client/redis-client.js';
import type { Script } from './script.js';
import { ScriptFault, scriptFaultOf } from './script-fault.js';

/** The answer of a script to one operation. Numbers come as strings from clients with `stringNumbers`. */
export type Reply = number | string | (number | string)[];

/** One operation of a caller: a part of a command. */
interface Operation {
  read: (answer: Reply | ScriptFault) => unknown;
  /** Called with the result of `read`. */
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

// Shared: while a server is down, an error for each operation would cost more than everything else.
const STILL_OPEN = new ScriptFault('it does not answer (an earlier command is still in flight)', false);
const NOT_CONNECTED = new ScriptFault('not connected', false, true);

/** How many commands of one script and route may differ in what their locks share: each is looked at for each operation. */
const ALIKE_AT_ONCE = 8;

/**
 * Runs scripts on one client. An operation that comes while nothing is in flight is sent at once, so batching never delays
 * a lone call. While the server is at work, the operations of one tick travel together: one EVALSHA for up to 50 locks, or
 * 100 to extend (in a Cluster: of the same slot), sent as soon as one of these is full, at the latest at the end of the tick.
 *
 * A command that is not answered in time is given up, but remembered: until it settles nothing more is sent along its
 * route, so a server that hangs costs one time limit once, and has a bounded number of commands queued for it.
 */
export class ScriptRunner {
  readonly #client: RedisClient;
  readonly #timeoutMs: number;
  readonly #sameConnection: boolean;
  readonly #listener?: ScriptRunnerListener;
  /** Commands that are sent by the end of this tick, by script and, in a Cluster, slot. */
  #gathered = new Map<Script | string, GatheredCommand>();
  /** Commands in flight that are not overdue, in the order in which they come due: one timer serves all. */
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

  /** Whether every command that was sent has been answered. */
  get isAnswered(): boolean {
    return !this.#open.first && this.#overdue.size === 0;
  }

  /**
   * Runs a script for one operation.
   * @param keys those that all locks of a call share first; likewise `args`
   * @param read called with the answer, in the order in which the server gave them, which promises would not keep; or with
   *   the reason why there is none: not connected, none in time, or an error of Redis
   * @returns the result of `read`
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
   * Like `ask`, without a promise: `done` is called with the result of `read`, after this has returned. Neither may throw.
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
      void Promise.resolve().then(() => deliver(operation, STILL_OPEN));
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
    let before: GatheredCommand | undefined;
    for (let others = 0; command && !sharesWith(command, keys, args); [before, command] = [command, command.other]) {
      if (++others < ALIKE_AT_ONCE) continue;
      this.#flush();
      before = command = undefined;
      break;
    }
    if (command) {
      for (let at = script.sharedKeys; at < keys.length; at++) command.keys.push(keys[at]!);
      for (let at = script.sharedArgs; at < args.length; at++) command.args.push(args[at]!);
    } else {
      command = new Command(script, route, [], [...keys], [...args], this) as GatheredCommand;
      if (before) before.other = command;
      else this.#gathered.set(id, command);
    }
    command.operations.push(operation);
    // Full: the server works on it while more is gathered. All are sent, or an acquire would go before an earlier release.
    if (command.operations.length === script.locksPerCall) this.#flush();
  }

  #flush(): void {
    if (this.#gathered.size === 0) return; // a full command has sent them already
    const commands: GatheredCommand[] = [];
    for (const command of this.#gathered.values()) {
      for (let next: GatheredCommand | undefined = command; next; next = next.other) commands.push(next);
    }
    this.#gathered = new Map(); // a Map that is cleared drags its earlier tables along in old memory
    if (commands.length > 1) commands.sort((a, b) => a.script.order - b.script.order);
    for (const command of commands) this.#send(command);
  }

  #send(command: Command): void {
    // The client's offline queue would send it when the server is back, which is too late to be of use.
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

  /** Called by a command that the server has answered. */
  answered(command: Command, answer: unknown): void {
    this.#settle(command); // before any callback acts on the answers
    // The client may resend commands that were open when a connection broke: then another, or a restarted, server answers.
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
      // An error in the reply, unlike one that the script throws, means that nothing was changed.
      const isError = Array.isArray(reply) && reply.length === 1;
      deliver(operation, isError ? new ScriptFault(String(reply[0]).replace(/\.$/, ''), false) : reply);
    });
  }

  /** Called by a command that gets no answer. */
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
    // After a pause of this process timers run first: answers that arrived meanwhile are read before they are given up.
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
      this.#timer = undefined; // not before: the loop has also looked at the commands that callbacks sent meanwhile
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
  /** Stands for the connection that it was sent on. */
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

  /** False once its operations were given up: then it is not sent again to a server that does not know its script. */
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

/** A command that is not sent yet and takes more operations. */
type GatheredCommand = Command & {
  keys: string[];
  args: (string | number)[];
  /** One of the same script and route whose locks share other keys or arguments, such as another ttl. */
  other?: GatheredCommand;
};

const NOTHING: never[] = [];

/** Whether one call can do a further operation: all have the shared keys and arguments. */
function sharesWith(
  { script, keys, args }: Command,
  ofNext: readonly string[],
  argsOfNext: readonly (string | number)[],
): boolean {
  for (let at = 0; at < script.sharedKeys; at++) if (keys[at] !== ofNext[at]) return false;
  for (let at = 0; at < script.sharedArgs; at++) if (args[at] !== argsOfNext[at]) return false;
  return true;
}

/** Answers one operation. A reader that throws must not keep the other operations of its command from their answers. */
function deliver({ read, done, failed }: Operation, answer: Reply | ScriptFault): void {
  try {
    done(read(answer) as never);
  } catch (error) {
    failed(error);
  }
}

/** Reports a bug as an unhandled rejection. */
function throwLater(error: unknown): void {
  void Promise.reject(error);
}

/** Answers all operations of a command with a fault. */
function fail(command: Command, fault: ScriptFault): void {
  for (const operation of taken(command)) deliver(operation, fault);
}

/** Takes the operations out of a command that is settled: it may live on in old memory for a while, and should hold little. */
function taken(command: Command): Operation[] {
  const { operations } = command;
  command.operations = command.keys = command.args = NOTHING;
  return operations;
}
