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

/** The reply of a script for one operation. Clients with `stringNumbers` return numbers as strings. */
export type Reply = number | string | (number | string)[];

/** An operation: a script for one lock. */
interface Run extends Operation {
  keys: readonly string[];
  args: readonly (string | number)[];
  done: (answer: Reply | ScriptFault, sentAt: number) => void;
  /** Identifies the connection on which it should be sent. */
  generation: unknown;
}

const NOTHING: never[] = [];

/** One call of a script, for one lock or for many. */
class ScriptCommand extends Command<ScriptCommand, Run> implements ScriptCall {
  /** The keys and arguments of all its operations, set when it is sent. */
  keys: readonly string[] = NOTHING;
  args: readonly (string | number)[] = NOTHING;
  /** The time when it was sent, by the clock of the service. */
  sentAt = 0;

  /** @param generation identifies the connection on which it should be sent, and later the one on which it was sent */
  constructor(
    readonly script: Script,
    readonly route: Route,
    readonly lane: Lane<ScriptCommand>,
    public generation: unknown,
    private readonly runner: ScriptRunner,
  ) {
    super(script.order, script.locksPerCall);
  }

  /** Operations can share a call if they have the same shared keys and arguments and the same connection. */
  canTake({ keys, args, generation }: Run): boolean {
    if (this.generation !== generation) return false;
    const { sharedKeys, sharedArgs } = this.script;
    const [first] = this.operations;
    for (let at = 0; at < sharedKeys; at++) if (first!.keys[at] !== keys[at]) return false;
    for (let at = 0; at < sharedArgs; at++) if (first!.args[at] !== args[at]) return false;
    return true;
  }

  /** Combines the keys and arguments of its operations. */
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

  override takeOperations(): Run[] {
    this.keys = this.args = NOTHING;
    return super.takeOperations();
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
  /** Whether an answer counts only if it came on the connection of its command. @default false */
  sameConnection?: boolean;
  /**
   * Called when a command was not answered in time.
   * @param isOpen whether it is still unanswered
   */
  onOverdue?: (isOpen: () => boolean) => void;
  /** Called when the last overdue command was answered or has failed. */
  onAnswering?: () => void;
  /** The clock for the time when a command is sent. @default the monotonic clock */
  now?: () => number;
}

// Shared, because an error object for each operation would be the largest cost while a server is down.
const STILL_OPEN = new ScriptFault('it does not answer (an earlier command is still in flight)', false);
const NOT_CONNECTED = new ScriptFault('not connected', false, true);
const WITHDRAWN = new ScriptFault('withdrawn before it was sent', false);

/**
 * Runs scripts on one client. An operation is sent at once if nothing is in flight, so batching never delays a single call. Only
 * extensions wait for the end of the tick. While commands are in flight, the operations of one tick share calls: one EVALSHA for up to
 * 50 locks, or 100 extensions. In a Cluster, all of them are in one slot. Calls are sent when one of them is full, or at the end of the
 * tick.
 *
 * The number of commands in flight to a server is bounded. Further commands wait in its lane, gather operations, and are sent as answers
 * arrive. So a busy server makes calls slower, but none fails. A server hangs if it answers nothing within the time limit. Then its
 * commands fail, but the runner remembers them, and sends nothing more along their routes until they settle. So a server that hangs
 * costs one time limit only, and a bounded number of commands is queued for it: docs/adr/0026-overload.md.
 */
export class ScriptRunner {
  readonly #client: RedisClient;
  readonly #timeoutMs: number;
  readonly #sameConnection: boolean;
  readonly #onOverdue: ScriptRunnerOptions['onOverdue'];
  readonly #onAnswering: ScriptRunnerOptions['onAnswering'];
  readonly #now: () => number;
  /** By the last part of the route: the server if it is known, otherwise the slot. */
  readonly #lanes = new Map<number | string, Lane<ScriptCommand>>();
  /** The lanes with commands of this tick. */
  #gathering = new Set<Lane<ScriptCommand>>();
  /** The number of commands that wait, or are in flight and not overdue. */
  #unsettled = 0;
  /** One timer for all commands in flight. */
  #timer?: NodeJS.Timeout;
  /** The commands that the client writes at the end of this event-loop turn. */
  #unwritten: ScriptCommand[] = [];
  /** The overdue commands, by each blocked part of their route. */
  readonly #overdue = new Map<number | string, Set<ScriptCommand>>();
  /** Whether to send commands even if overdue commands block their route. */
  #isInsisting = false;
  readonly #sendGathered = () => this.#flush();

  /** @param timeoutMs how long the server may be silent, in milliseconds */
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

  /** Whether the server has answered every command. */
  get isAnswered(): boolean {
    return this.#unsettled === 0 && this.#overdue.size === 0;
  }

  /** Whether so many commands are in flight that a new operation may have to wait in this process. */
  get isCongested(): boolean {
    return this.#unsettled >= COMMANDS_IN_FLIGHT;
  }

  /**
   * Sends new commands even behind overdue ones, until another command is overdue. Call it while the application closes, since nothing
   * can be retried later, and a connection keeps the order of its commands. A server that hangs then costs only one more time limit.
   */
  insist(): void {
    this.#isInsisting = true;
  }

  /**
   * Runs a script for one operation.
   * @param keys the shared keys of the call come first, likewise in `args`
   * @param read called with the answer, or with a fault: not connected, no answer in time, or an error of Redis. Calls have the order of
   *   the server's answers, which promises would not keep
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
   * Like `ask`, but calls `done` with the answer after this method has returned. `done` must not throw.
   * @param done its second argument is the time when the command was sent, or when it failed unsent, by the clock of the service
   * @param wanted checked before the operation is sent, which may be later: an unwanted operation fails instead
   * @returns the state of the unsent command; undefined if it will never be sent
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
    // Extensions come in hundreds, and none is urgent, so they are always batched.
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
    // The server can work on it while others gather. All lanes are sent, otherwise an acquisition could overtake an earlier release.
    if (command.isFull) this.#flush();
    return command;
  }

  #flush(): void {
    const lanes = this.#gathering;
    this.#gathering = new Set();
    for (const lane of lanes) this.#sendFrom(lane);
  }

  /** Sends the waiting commands of a lane while there is room. Runs outside the async context of the calls, since a command serves many. */
  #sendFrom(lane: Lane<ScriptCommand>): void {
    outsideOfCalls(() => {
      for (let command = lane.next(); command; command = lane.next()) {
        this.#drop(command.removeUnwanted(), WITHDRAWN);
        if (command.isWanted) this.#send(command);
        else this.#unsettled--;
      }
    });
  }

  #send(command: ScriptCommand): void {
    const { generation, isReady } = this.#client;
    // The offline queue of the client would send it when the server is back, which is too late. And after a reconnection the check of
    // the server for a restart is no longer valid.
    const isOffline = !isReady || (this.#sameConnection && command.generation !== generation);
    if (isOffline || this.#isBlocked(command.route)) {
      this.#unsettled--;
      this.#drop(command.takeOperations(), isOffline ? NOT_CONNECTED : STILL_OPEN);
      return;
    }
    command.complete();
    command.generation = generation;
    command.sentAt = this.#now();
    const now = performance.now();
    command.lane.noteSending(command, now);
    if (this.#client.sendsLater) this.#countLater(command);
    if (!this.#timer) this.#lookAgainAt(now + this.#timeoutMs);
    this.#client.run(command);
  }

  /** Fails operations that were never sent. It does so asynchronously, because their callers may not have returned yet. */
  #drop(operations: readonly Run[], fault: ScriptFault): void {
    if (operations.length === 0) return;
    void Promise.resolve().then(() => {
      for (const operation of operations) deliver(operation, fault, this.#now());
    });
  }

  /** Called by a command that is sent again, behind others. The server is alive, so the time limit restarts. */
  sentAgain(command: ScriptCommand): void {
    const { lane } = command;
    const now = performance.now();
    lane.noteAnswer(command, now);
    lane.remove(command);
    lane.noteSending(command, now);
    if (this.#client.sendsLater) this.#countLater(command);
  }

  /** Starts the time limit when the client writes the command: until then other work may block the event loop. */
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
    // Before any callback acts on the answers, so that the server can already work on the next commands.
    if (this.#settle(command, true)) this.#sendFrom(command.lane);
    // The client may resend commands that were open when a connection broke. Then another or a restarted server answers.
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
    command.takeOperations().forEach((operation, index) => {
      const reply = replies[index] as Reply;
      // A script that returns an error has changed nothing. A script that throws may have.
      const isError = Array.isArray(reply) && reply.length === 1;
      deliver(operation, isError ? caughtFaultOf(String(reply[0]).replace(/\.$/, '')) : reply, sentAt);
    });
  }

  /** Called by a command that will get no answer. */
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
    if (isHeard) lane.noteAnswer(command, performance.now());
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
    // After a pause of this process timers run first, so it reads pending answers before it gives up commands. A command that is not
    // overdue at this moment is not overdue then, however long reading takes.
    const now = performance.now();
    setImmediate(() => {
      let dueAt = performance.now() + this.#timeoutMs;
      for (const [server, lane] of this.#lanes) {
        for (let oldest = lane.longestUnanswered; oldest; oldest = lane.longestUnanswered) {
          if (oldest.since + this.#timeoutMs > now) {
            dueAt = Math.min(dueAt, oldest.since + this.#timeoutMs);
            break;
          }
          this.#giveUp(oldest.command);
        }
        this.#sendFrom(lane); // fails the waiting commands, too, unless there is a new connection
        if (lane.isIdle) this.#lanes.delete(server);
      }
      // Only now, because callbacks may have sent commands meanwhile.
      this.#timer = undefined;
      if (this.#unsettled > 0) this.#lookAgainAt(dueAt);
    });
  }

  #giveUp(command: ScriptCommand): void {
    const { route, lane } = command;
    lane.remove(command);
    this.#unsettled--;
    // If the server has answered later commands, only the slot is blocked: another node owes the answer.
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

  /** Blocks the route for one time limit. */
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

/** Answers one operation. If its callback throws, the other operations of the command still get their answers. */
function deliver({ done }: Run, answer: Reply | ScriptFault, sentAt: number): void {
  try {
    done(answer, sentAt);
  } catch (bug) {
    void Promise.reject(bug);
  }
}

/** Fails all operations of a sent command. */
function fail(command: ScriptCommand, fault: ScriptFault): void {
  for (const operation of command.takeOperations()) deliver(operation, fault, command.sentAt);
}
