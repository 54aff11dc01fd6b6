import { LinkedList, type Linked } from '../../../core/time/linked-list.js';
import type { CommandFault, Route, ScriptCall } from '../client/redis-client.js';
import type { Script } from './script.js';
import type { ScriptFault } from './script-fault.js';

/**
 * How many commands are in flight to a server at most: enough that it is never idle while the client reads answers and
 * writes the next commands; few enough that an extension which comes now is answered some milliseconds later.
 */
export const COMMANDS_IN_FLIGHT = 32;

/** How many commands of one script that are not full wait for operations which share their keys and arguments. */
const ALIKE_AT_ONCE = 8;

/** The `order` of scripts that extend locks, or keep them. */
export const EXTENSION = 2;

const NOTHING: never[] = [];

/** The answer of a script to one operation. Numbers come as strings from clients with `stringNumbers`. */
export type Reply = number | string | (number | string)[];

/** Says, just before an operation is sent, whether its answer is still of use: it, or its caller, may have had to wait. */
export interface Wanted {
  readonly isWanted: boolean;
}

/** Says whether an operation was sent. */
export interface Sending {
  /** Whether it waits in this process: if it is not wanted by the time there is room for it, it is never sent. */
  readonly isWaiting: boolean;
}

/** One operation of a caller: a part of a command. */
export interface Operation {
  keys: readonly string[];
  args: readonly (string | number)[];
  read: (answer: Reply | ScriptFault) => unknown;
  /** Called with the result of `read`, and the time when the command was sent; when it failed, if it never was. */
  done: (value: never, sentAt: number) => void;
  failed: (reason: unknown) => void;
  wanted?: Wanted;
}

/** Hears from its commands. */
export interface CommandListener {
  sentAgain(command: Command): void;
  answered(command: Command, answer: unknown): void;
  failed(command: Command, fault: CommandFault): void;
}

/** One call of a script, for one operation or for many: open until the server has answered. */
export class Command implements ScriptCall, Sending, Linked<Command> {
  operations: Operation[] = [];
  /** The keys of all its operations, from when it is sent. */
  keys: readonly string[] = NOTHING;
  /** The arguments of all its operations, from when it is sent. */
  args: readonly (string | number)[] = NOTHING;
  /** When it was sent, by the clock of the service. */
  sentAt = 0;
  /** When it was last sent, by the clock of the time limits. */
  countsFrom = 0;
  /** Its place in the order in which the commands of its lane were sent; 0 before that. */
  number = 0;
  list?: { remove(command: Command): void };
  next?: Command;
  previous?: Command;

  /** @param generation stands for the connection that it is meant for, then for that it was sent on */
  constructor(
    readonly script: Script,
    readonly route: Route,
    readonly lane: Lane,
    public generation: unknown,
    private readonly listener: CommandListener,
  ) {}

  /** False once its operations were given up: then it is not sent again to a server that does not know its script. */
  get isWanted(): boolean {
    return this.operations.length > 0;
  }

  /** Whether it waits in its lane. */
  get isWaiting(): boolean {
    return this.list !== undefined && this.number === 0;
  }

  get isFull(): boolean {
    return this.operations.length >= this.script.locksPerCall;
  }

  /** Whether an operation can join: all of a call have the shared keys and arguments. */
  takes(keys: readonly string[], args: readonly (string | number)[], generation: unknown): boolean {
    if (!this.isWaiting || this.isFull || this.generation !== generation) return false;
    const { sharedKeys, sharedArgs } = this.script;
    const [first] = this.operations;
    for (let at = 0; at < sharedKeys; at++) if (first!.keys[at] !== keys[at]) return false;
    for (let at = 0; at < sharedArgs; at++) if (first!.args[at] !== args[at]) return false;
    return true;
  }

  /** Takes out the operations that are not wanted any more. @returns them */
  withdrawn(): readonly Operation[] {
    const isWithdrawn = ({ wanted }: Operation) => wanted?.isWanted === false;
    const withdrawn = this.operations.filter(isWithdrawn);
    if (withdrawn.length > 0) this.operations = this.operations.filter((operation) => !isWithdrawn(operation));
    return withdrawn;
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

  /** Takes the operations out of a command that is settled: it may live on in old memory, and should hold little. */
  taken(): Operation[] {
    const { operations } = this;
    this.operations = NOTHING;
    this.keys = this.args = NOTHING;
    return operations;
  }

  sentAgain(): void {
    this.listener.sentAgain(this);
  }

  answered(reply: unknown): void {
    this.listener.answered(this, reply);
  }

  failed(fault: CommandFault): void {
    this.listener.failed(this, fault);
  }
}

/** Two lists of commands that are taken from in turn, so that neither holds up the other. */
class InTurn {
  readonly #lists = [new LinkedList<Command>(), new LinkedList<Command>()] as const;
  #turn: 0 | 1 = 0;

  get isEmpty(): boolean {
    return this.#lists[0].size + this.#lists[1].size === 0;
  }

  push(command: Command, list: 0 | 1): void {
    if (this.isEmpty) this.#turn = 0;
    this.#lists[list].push(command);
  }

  take(): Command | undefined {
    const turn = this.#lists[this.#turn].size > 0 ? this.#turn : ((1 - this.#turn) as 0 | 1);
    const { first } = this.#lists[turn];
    if (first) this.#lists[turn].remove(first);
    this.#turn = (1 - turn) as 0 | 1;
    return first;
  }
}

/**
 * The commands to one server: a bounded number in flight, and behind them those that wait in this process. Releases and
 * extensions are sent first, in turn; then acquires, in turn with inspections.
 */
export class Lane {
  /** In flight and not overdue, in the order in which they were sent. */
  readonly #open = new LinkedList<Command>();
  readonly #urgent = new InTurn();
  readonly #others = new InTurn();
  /** The last commands of each kind, which may take more operations. */
  #latest = new Map<Script | string, Command[]>();
  /** The number of the last command that was sent. */
  #sent = 0;
  /** The highest number of a command that was answered. */
  #answered = 0;
  #answeredAt = -Infinity;

  /** Whether a command may be sent. */
  get hasRoom(): boolean {
    return this.#open.size < COMMANDS_IN_FLIGHT;
  }

  get isIdle(): boolean {
    return this.#open.size === 0 && !this.isWaitedIn;
  }

  /** Whether commands wait. */
  get isWaitedIn(): boolean {
    return !this.#urgent.isEmpty || !this.#others.isEmpty;
  }

  /** Finds a command that waits and that an operation can join. @param kind that of the command: its script, and its slot */
  commandFor(
    kind: Script | string,
    keys: readonly string[],
    args: readonly (string | number)[],
    generation: unknown,
  ): Command | undefined {
    return this.#latest.get(kind)?.find((command) => command.takes(keys, args, generation));
  }

  /** Puts a command behind those of its order that wait. */
  wait(kind: Script | string, command: Command): void {
    const { order } = command.script;
    if (order <= EXTENSION) this.#urgent.push(command, order <= 1 ? 0 : 1);
    else this.#others.push(command, order === 3 ? 0 : 1);
    const latest = this.#latest.get(kind)?.filter(({ isWaiting, isFull }) => isWaiting && !isFull) ?? [];
    this.#latest.set(kind, [...latest.slice(1 - ALIKE_AT_ONCE), command]);
  }

  /** Takes the next command that waits, if there is room for it. */
  next(): Command | undefined {
    if (!this.hasRoom) return undefined;
    const next = this.#urgent.take() ?? this.#others.take();
    // A new Map: one that is cleared drags its earlier tables along in old memory.
    if (!next && this.#latest.size > 0) this.#latest = new Map();
    return next;
  }

  /** Notes that a command is about to be sent. @param now by the clock of the time limits */
  sending(command: Command, now: number): void {
    command.countsFrom = now;
    command.number = ++this.#sent;
    this.#open.push(command);
  }

  /** Notes that a command is not in flight any more, or overdue. */
  remove(command: Command): void {
    this.#open.remove(command);
  }

  /** Notes that the server has answered, or refused, a command. */
  heard({ number }: Command, now: number): void {
    this.#answeredAt = now;
    if (number > this.#answered) this.#answered = number;
  }

  /**
   * Whether the server has answered commands that were sent after this one. On one connection that does not happen; in a
   * Cluster, a command may have been passed on to another node.
   */
  isPassed({ number }: Command): boolean {
    return number < this.#answered;
  }

  /**
   * The command that the server has owed the answer to for the longest time, and since when: a server that answers one
   * command after the other is at work.
   */
  get owed(): { command: Command; since: number } | undefined {
    const command = this.#open.first;
    if (!command) return undefined;
    const { countsFrom } = command;
    return { command, since: this.isPassed(command) ? countsFrom : Math.max(countsFrom, this.#answeredAt) };
  }
}
