import { performance } from 'node:perf_hooks';
import { nextTick, outsideOfCalls, setImmediate } from '../../../core/time/event-loop.js';
import {
  Command,
  COMMANDS_IN_FLIGHT,
  EXTENSION,
  Lane,
  type Operation,
  type Sending,
  type Wanted,
} from '../../../core/backend/lane.js';
import type { CommandFault, RedisClient, Route, ScriptCall } from '../client/redis-client.js';
import type { Script } from './script.js';
import { caughtFaultOf, ScriptFault, scriptFaultOf } from './script-fault.js';

/** The answer of a script to one operation. Numbers come as strings from clients with `stringNumbers`. */
export type Reply = number | string | (number | string)[];

/** A script for one lock. */
interface Run extends Operation {
  keys: readonly string[];
  args: readonly (string | number)[];
  done: (answer: Reply | ScriptFault, sentAt: number) => void;
  /** Stands for the connection that it is meant for. */
  generation: unknown;
}

const NOTHING: never[] = [];

/** One call of a script, for one lock or for many. */
class ScriptCommand extends Command<ScriptCommand, Run> implements ScriptCall {
  /** The keys and arguments of all its operations, from when it is sent. */
  keys: readonly string[] = NOTHING;
  args: readonly (string | number)[] = NOTHING;
  /** When it was sent, by the clock of the service. */
  sentAt = 0;

  /** @param generation stands for the connection that it is meant for, then for that it was sent on */
  constructor(
    readonly script: Script,
    readonly route: Route,
    readonly lane: Lane<ScriptCommand>,
    public generation: unknown,
    private readonly runner: ScriptRunner,
  ) {
    super(script.order, script.locksPerCall);
  }

  /** All locks of a call have the shared keys and arguments, and are meant for the same connection. */
  suits({ keys, args, generation }: Run): boolean {
    if (this.generation !== generation) return false;
    const { sharedKeys, sharedArgs } = this.script;
    const [first] = this.operations;
    for (let at = 0; at < sharedKeys; at++) if (first!.keys[at] !== keys[at]) return false;
    for (let at = 0; at < sharedArgs; at++) if (first!.args[at] !== args[at]) return false;
    return true;
  }

  /** Puts the keys and arguments of its operations together. */
  complete(): void {
    const [first] = this.operations;
    if (this.operations.length === 1) {
      this.keys = first!.keys;
      this.args = first!.args;
      return;
    }
    const { sharedKeys, sharedArgs } = this.script;
    const keys = first!.keys.slice(0, sharedKeys);
    const args = first!.args.slice(0, sharedArgs);
    for (const operation of this.operations) {
      for (let at = sharedKeys; at < operation.keys.length; at++) keys.push(operation.keys[at]!);
      for (let at = sharedArgs; at < operation.args.length; at++) args.push(operation.args[at]!);
    }
    this.keys = keys;
    this.args = args;
  }

  override taken(): Run[] {
    this.keys = this.args = NOTHING;
    return super.taken();
  }

  sentAgain(): void {
    this.runner.sentAgain(this);
  }

  answered(reply: unknown): void {
    this.runner.answered(this, reply);
  }

  failed(fault: CommandFault): void {
    this.runner.failed(this, fault);
  }
}

export interface ScriptRunnerOptions {
  /** An answer counts only if its command was sent on the connection that it came on. @default false */
  sameConnection?: boolean;
  /**
   * A command was not answered in time.
   * @param isOpen whether it still is not
   */
  onOverdue?: (isOpen: () => boolean) => void;
  /** The last overdue command was answered after all, or has failed. */
  onAnswering?: () => void;
  /** The clock that the time of sending is read from. @default the monotonic clock */
  now?: () => number;
}

// Shared: while a server is down, an error for each operation would cost more than everything else.
const STILL_OPEN = new ScriptFault('it does not answer (an earlier command is still in flight)', false);
const NOT_CONNECTED = new ScriptFault('not connected', false, true);
const WITHDRAWN = new ScriptFault('withdrawn before it was sent', false);

/**
 * Runs scripts on one client. An operation that comes while nothing is in flight is sent at once, so batching never delays
 * a lone call; extensions wait for the end of the tick. While the server is at work, the operations of one tick travel together: one EVALSHA for up to 50 locks, or
 * 100 to extend (in a Cluster of one slot), sent as soon as one of these is full, at the latest at the end of the tick.
 *
 * What is in flight to a server is bounded: further commands wait in their lane, where they fill up, and are sent as answers
 * come in. So a server that is busy takes longer, and fails nothing. It hangs if it answers nothing for the time limit: then
 * its commands are given up, but remembered, and until they settle nothing more is sent along their routes. So a server that
 * hangs costs one time limit once, and has a bounded number of commands queued for it: docs/adr/0026-overload.md.
 */
export class ScriptRunner {
  readonly #client: RedisClient;
  readonly #timeoutMs: number;
  readonly #sameConnection: boolean;
  readonly #onOverdue: ScriptRunnerOptions['onOverdue'];
  readonly #onAnswering: ScriptRunnerOptions['onAnswering'];
  readonly #now: () => number;
  /** By the last part of their routes: the server where it is known, else the slot. */
  readonly #lanes = new Map<number | string, Lane<ScriptCommand>>();
  /** The lanes that commands of this tick wait in. */
  #gathering = new Set<Lane<ScriptCommand>>();
  /** How many commands wait, or are in flight and not overdue. */
  #unsettled = 0;
  /** One timer serves all that is in flight. */
  #timer?: NodeJS.Timeout;
  /** What the client writes at the end of this turn of the event loop. */
  #unwritten: ScriptCommand[] = [];
  /** The overdue commands, by each part of their route that they block. */
  readonly #overdue = new Map<number | string, Set<ScriptCommand>>();
  /** Whether overdue commands block nothing. */
  #isInsisting = false;
  readonly #sendGathered = () => this.#flush();

  /** @param timeoutMs how long the server may answer nothing, in milliseconds */
  constructor(
    client: RedisClient,
    timeoutMs: number,
    { sameConnection = false, onOverdue, onAnswering, now = () => performance.now() }: ScriptRunnerOptions = {},
  ) {
    this.#client = client;
    this.#timeoutMs = timeoutMs;
    this.#sameConnection = sameConnection;
    this.#onOverdue = onOverdue;
    this.#onAnswering = onAnswering;
    this.#now = now;
  }

  /** Whether every command was answered. */
  get isAnswered(): boolean {
    return this.#unsettled === 0 && this.#overdue.size === 0;
  }

  /** Whether so much is in flight that an operation which comes now may have to wait in this process. */
  get isCongested(): boolean {
    return this.#unsettled >= COMMANDS_IN_FLIGHT;
  }

  /**
   * Sends what comes now even behind overdue commands, until one more is given up: the application closes, so nothing can be
   * retried later, and a connection keeps the order of its commands. After that a hanging server costs no further time limit.
   */
  insist(): void {
    this.#isInsisting = true;
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
      const tryToRead = (answer: Reply | ScriptFault) => {
        try {
          resolve(read(answer));
        } catch (error) {
          reject(error);
        }
      };
      this.run(script, keys, args, tryToRead);
    });
  }

  /**
   * Like `ask`, without a promise: `done` is called with the answer, after this has returned. It must not throw.
   * @param done its second argument says when the command was sent, by the clock of the service; when it failed, if it never was
   * @param wanted asked before an operation is sent, which may be later: if it is not wanted any more, it fails instead
   * @returns whether it waits to be sent; undefined if it never will be
   */
  run(
    script: Script,
    keys: readonly string[],
    args: readonly (string | number)[],
    done: (answer: Reply | ScriptFault, sentAt: number) => void,
    wanted?: Wanted,
  ): Sending | undefined {
    const { generation } = this.#client;
    const operation: Run = { keys, args, done, wanted, generation };
    if (wanted?.isWanted === false) {
      this.#drop([operation], WITHDRAWN);
      return undefined;
    }
    const route = this.#client.topology.routeOf(keys[0]!);
    if (this.#isBlocked(route)) {
      this.#drop([operation], STILL_OPEN);
      return undefined;
    }
    const lane = this.#laneOf(route.at(-1)!);
    const kind = this.#client.topology.isCluster ? `${script.name}:${route[0]}` : script;
    const waiting = lane.commandFor(kind, operation);
    const command = waiting ?? new ScriptCommand(script, route, lane, generation, this);
    command.operations.push(operation);
    // Extensions come by the hundred, and none is needed before the end of its tick: they travel together even then.
    if (this.#unsettled === 0 && script.order !== EXTENSION) {
      this.#unsettled++;
      this.#send(command);
      return command;
    }
    if (!waiting) {
      this.#unsettled++;
      lane.wait(kind, command);
      if (this.#gathering.size === 0) nextTick(this.#sendGathered);
      this.#gathering.add(lane);
    }
    // The server works on it while more is gathered. All are sent, or an acquire would go before an earlier release.
    if (command.isFull) this.#flush();
    return command;
  }

  #flush(): void {
    const lanes = this.#gathering;
    this.#gathering = new Set();
    for (const lane of lanes) this.#sendFrom(lane);
  }

  /** Sends what waits in a lane, as far as there is room: outside of the calls, of which many may travel together. */
  #sendFrom(lane: Lane<ScriptCommand>): void {
    outsideOfCalls(() => {
      for (let command = lane.next(); command; command = lane.next()) {
        this.#drop(command.withdrawn(), WITHDRAWN);
        if (command.isWanted) this.#send(command);
        else this.#unsettled--;
      }
    });
  }

  #send(command: ScriptCommand): void {
    const { generation, isReady } = this.#client;
    // The client's offline queue would send it when the server is back, which is too late to be of use. And a server that was
    // checked for a restart was so on the connection that the command was meant for.
    const isOffline = !isReady || (this.#sameConnection && command.generation !== generation);
    if (isOffline || this.#isBlocked(command.route)) {
      this.#unsettled--;
      this.#drop(command.taken(), isOffline ? NOT_CONNECTED : STILL_OPEN);
      return;
    }
    command.complete();
    command.generation = generation;
    command.sentAt = this.#now();
    const now = performance.now();
    command.lane.sending(command, now);
    if (this.#client.sendsLater) this.#countLater(command);
    if (!this.#timer) this.#lookAgainAt(now + this.#timeoutMs);
    this.#client.run(command);
  }

  /** Answers operations that were never sent, but not at once: their callers may just be asking. */
  #drop(operations: readonly Run[], fault: ScriptFault): void {
    if (operations.length === 0) return;
    void Promise.resolve().then(() => {
      for (const operation of operations) deliver(operation, fault, this.#now());
    });
  }

  /** Called by a command that is sent a second time, behind others: the server answers, and may take its time anew. */
  sentAgain(command: ScriptCommand): void {
    const { lane } = command;
    const now = performance.now();
    lane.heard(command, now);
    lane.remove(command);
    lane.sending(command, now);
    if (this.#client.sendsLater) this.#countLater(command);
  }

  /** Lets its time begin when the client writes it: work that keeps the event loop busy until then is not the server's. */
  #countLater(command: ScriptCommand): void {
    if (this.#unwritten.push(command) > 1) return;
    setImmediate(() => {
      const written = this.#unwritten;
      this.#unwritten = [];
      const now = performance.now();
      for (const each of written) each.countsFrom = now;
    });
  }

  /** Called by a command that the server has answered. */
  answered(command: ScriptCommand, answer: unknown): void {
    // Before any callback acts on the answers; and the server works on what is sent while they are read.
    if (this.#settle(command, true)) this.#sendFrom(command.lane);
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
    const { sentAt } = command;
    command.taken().forEach((operation, index) => {
      const reply = replies[index] as Reply;
      // An error in the reply, unlike one that the script throws, means that nothing was changed.
      const isError = Array.isArray(reply) && reply.length === 1;
      deliver(operation, isError ? caughtFaultOf(String(reply[0]).replace(/\.$/, '')) : reply, sentAt);
    });
  }

  /** Called by a command that gets no answer. */
  failed(command: ScriptCommand, fault: CommandFault): void {
    const hasMadeRoom = this.#settle(command, fault.kind === 'refused');
    if (fault.kind === 'overdue') this.#pause(command);
    if (hasMadeRoom) this.#sendFrom(command.lane);
    fail(command, scriptFaultOf(fault));
  }

  /**
   * @param isHeard whether the server has answered
   * @returns whether its lane was full
   */
  #settle(command: ScriptCommand, isHeard: boolean): boolean {
    const { lane } = command;
    if (isHeard) lane.heard(command, performance.now());
    if (!command.list) {
      this.#unblock(command.route, command);
      if (this.#overdue.size === 0) this.#onAnswering?.();
      return false;
    }
    const wasFull = !lane.hasRoom;
    lane.remove(command);
    this.#unsettled--;
    return wasFull;
  }

  #lookAgainAt(dueAt: number): void {
    const delayMs = Math.ceil(dueAt - performance.now());
    this.#timer = outsideOfCalls(() => setTimeout(() => this.#lookForOverdue(), delayMs)).unref();
  }

  #lookForOverdue(): void {
    // After a pause of this process timers run first: answers that arrived meanwhile are read before they are given up. What
    // is not overdue by now is not so then, however long the process takes until it comes to that.
    const now = performance.now();
    setImmediate(() => {
      let dueAt = performance.now() + this.#timeoutMs;
      for (const [server, lane] of this.#lanes) {
        for (let owed = lane.owed; owed; owed = lane.owed) {
          if (owed.since + this.#timeoutMs > now) {
            dueAt = Math.min(dueAt, owed.since + this.#timeoutMs);
            break;
          }
          this.#giveUp(owed.command);
        }
        this.#sendFrom(lane); // what waits is given up, too, unless there is a new connection
        if (lane.isIdle) this.#lanes.delete(server);
      }
      // Not before: callbacks may have sent commands meanwhile.
      this.#timer = undefined;
      if (this.#unsettled > 0) this.#lookAgainAt(dueAt);
    });
  }

  #giveUp(command: ScriptCommand): void {
    const { route, lane } = command;
    lane.remove(command);
    this.#unsettled--;
    // Where the server has answered later commands, only the slot is blocked: it is another node that owes the answer.
    this.#block(command, lane.isPassed(command) ? route.slice(0, 1) : route);
    this.#onOverdue?.(() => this.#overdue.get(route[0]!)?.has(command) ?? false);
    fail(command, new ScriptFault(`no answer within ${this.#timeoutMs} ms`, true));
  }

  #isBlocked(route: Route): boolean {
    return this.#overdue.size > 0 && !this.#isInsisting && route.some((part) => this.#isBlockedAt(part));
  }

  #isBlockedAt(part: number | string): boolean {
    const commands = this.#overdue.get(part);
    if (!commands) return false;
    if (this.#client.forgetsOpenCommands) {
      const { generation } = this.#client;
      for (const command of commands) if (command.generation !== generation) this.#unblock([part], command);
    }
    return commands.size > 0;
  }

  #block(command: ScriptCommand, parts: Route): void {
    this.#isInsisting = false;
    for (const part of parts) {
      const commands = this.#overdue.get(part);
      if (commands) commands.add(command);
      else this.#overdue.set(part, new Set([command]));
    }
  }

  #unblock(route: Route, command: ScriptCommand): void {
    for (const part of route) {
      const commands = this.#overdue.get(part);
      if (commands?.delete(command) && commands.size === 0) this.#overdue.delete(part);
    }
  }

  /** Blocks the route for as long as a command may take. */
  #pause(command: ScriptCommand): void {
    this.#block(command, command.route);
    setTimeout(() => this.#unblock(command.route, command), this.#timeoutMs).unref();
  }

  #laneOf(server: number | string): Lane<ScriptCommand> {
    let lane = this.#lanes.get(server);
    if (!lane) this.#lanes.set(server, (lane = new Lane<ScriptCommand>()));
    return lane;
  }
}

function isReply(value: unknown): value is Reply {
  return typeof value === 'number' || typeof value === 'string' || Array.isArray(value);
}

/** Answers one operation. A callback that throws must not keep the other operations of its command from their answers. */
function deliver({ done }: Run, answer: Reply | ScriptFault, sentAt: number): void {
  try {
    done(answer, sentAt);
  } catch (bug) {
    void Promise.reject(bug);
  }
}

/** Answers all operations of a command that was sent with a fault. */
function fail(command: ScriptCommand, fault: ScriptFault): void {
  for (const operation of command.taken()) deliver(operation, fault, command.sentAt);
}
