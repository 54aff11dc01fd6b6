import { LinkedList, type Linked } from '../time/linked-list.js';

/**
 * Maximum number of commands in flight to a server. With so many, the server is never idle while the client reads answers and writes commands.
 * With so few, the server answers a new extension within some milliseconds.
 */
export const COMMANDS_IN_FLIGHT = 32;

/** Maximum number of waiting commands of one kind that can still take operations. */
const MAX_JOINABLE = 8;

/** The order of the commands that wait for a server: releases (up to `RELEASE`), extensions, acquisitions, and then commands that only read. */
export const [RELEASE, EXTENSION, ACQUISITION] = [1, 2, 3] as const;

const NOTHING: never[] = [];

/** Says, just before an operation is sent, whether the caller still needs its answer. */
export interface Wanted {
  readonly isWanted: boolean;
}

/** Says whether an operation has been sent. */
export interface Sending {
  /** Whether it still waits in this process. If it is no longer wanted by the time there is room for it, it is never sent. */
  readonly isWaiting: boolean;
}

/** One operation of a caller: a part of a command. */
export interface Operation {
  readonly wanted?: Wanted;
}

/** A command for one operation or many, until the server has answered. */
export abstract class Command<Self, Part extends Operation> implements Sending, Linked<Self> {
  operations: Part[] = [];
  /** When it was last sent, by the clock of the time limits: its time limit counts from then. */
  countsFrom = 0;
  /** Its number in the order in which the commands of its lane were sent; 0 before it is sent. */
  number = 0;
  list?: { remove(command: Self): void };
  next?: Self;
  previous?: Self;

  /** @param most maximum number of its operations */
  constructor(
    readonly order: number,
    private readonly most: number,
  ) {}

  /** False after its operations were given up. */
  get isWanted(): boolean {
    return this.operations.length > 0;
  }

  /** Whether it waits in its lane. */
  get isWaiting(): boolean {
    return this.list !== undefined && this.number === 0;
  }

  get isFull(): boolean {
    return this.operations.length >= this.most;
  }

  /** Whether this command can take an operation of the same kind. */
  abstract canTake(operation: Part): boolean;

  /** Removes the operations that are not wanted any more. @returns these operations */
  removeUnwanted(): readonly Part[] {
    const isWithdrawn = ({ wanted }: Part) => wanted?.isWanted === false;
    const withdrawn = this.operations.filter(isWithdrawn);
    if (withdrawn.length > 0) this.operations = this.operations.filter((operation) => !isWithdrawn(operation));
    return withdrawn;
  }

  /** Removes the operations of a settled command: the old generation of the heap may keep the command itself. @returns these operations */
  takeOperations(): Part[] {
    const { operations } = this;
    this.operations = NOTHING;
    return operations;
  }
}

/** A command with any kind of operations. */
type AnyCommand<Self> = Command<Self, Operation>;

/** Two lists of commands, whose commands are taken in turn, so that neither list delays the other. */
class InTurn<One extends AnyCommand<One>> {
  readonly #lists = [new LinkedList<One>(), new LinkedList<One>()] as const;
  #turn: 0 | 1 = 0;

  get isEmpty(): boolean {
    return this.#lists[0].size + this.#lists[1].size === 0;
  }

  push(command: One, list: 0 | 1): void {
    if (this.isEmpty) this.#turn = 0;
    this.#lists[list].push(command);
  }

  take(): One | undefined {
    const turn = this.#lists[this.#turn].size > 0 ? this.#turn : ((1 - this.#turn) as 0 | 1);
    const { first } = this.#lists[turn];
    if (first) this.#lists[turn].remove(first);
    this.#turn = (1 - turn) as 0 | 1;
    return first;
  }
}

/**
 * The commands to one server: a bounded number of them is in flight, and the others wait in this process. Releases and extensions are sent
 * first, in turn. Acquisitions come next, in turn with commands that only read.
 */
export class Lane<One extends AnyCommand<One>> {
  /** The commands in flight that are not overdue, in the order in which they were sent. */
  readonly #open = new LinkedList<One>();
  readonly #urgent = new InTurn<One>();
  readonly #others = new InTurn<One>();
  /** The last commands of each kind: they may take more operations. */
  #latest = new Map<unknown, One[]>();
  /** The number of the last command that was sent. */
  #sent = 0;
  /** The highest number of a command that was answered. */
  #answered = 0;
  #answeredAt = -Infinity;

  /** @param mostInFlight maximum number of commands in flight */
  constructor(private readonly mostInFlight = COMMANDS_IN_FLIGHT) {}

  /** Whether a command may be sent. */
  get hasRoom(): boolean {
    return this.#open.size < this.mostInFlight;
  }

  /** Whether no command is in flight, and none waits. */
  get isIdle(): boolean {
    return this.#open.size === 0 && this.#urgent.isEmpty && this.#others.isEmpty;
  }

  /** Finds a waiting command that can take an operation of this kind. */
  commandFor(kind: unknown, operation: Operation): One | undefined {
    return this.#latest
      .get(kind)
      ?.find((command) => command.isWaiting && !command.isFull && command.canTake(operation));
  }

  /** Puts a command behind the waiting commands of its order. */
  wait(kind: unknown, command: One): void {
    const { order } = command;
    if (order <= EXTENSION) this.#urgent.push(command, order <= RELEASE ? 0 : 1);
    else this.#others.push(command, order === ACQUISITION ? 0 : 1);
    const latest = this.#latest.get(kind)?.filter(({ isWaiting, isFull }) => isWaiting && !isFull) ?? [];
    this.#latest.set(kind, [...latest.slice(1 - MAX_JOINABLE), command]);
  }

  /** Takes the next command that waits, if there is room for it. */
  next(): One | undefined {
    if (!this.hasRoom) return undefined;
    const next = this.#urgent.take() ?? this.#others.take();
    // A new Map: a cleared one keeps its earlier tables alive in the old generation of the heap.
    if (!next && this.#latest.size > 0) this.#latest = new Map();
    return next;
  }

  /** Notes that a command is about to be sent. @param now by the clock of the time limits */
  noteSending(command: One, now: number): void {
    command.countsFrom = now;
    command.number = ++this.#sent;
    this.#open.push(command);
  }

  /** Notes that a command is not in flight any more, or is overdue. */
  remove(command: One): void {
    this.#open.remove(command);
  }

  /** Notes that the server has answered, or rejected, a command. */
  noteAnswer({ number }: One, now: number): void {
    this.#answeredAt = now;
    if (number > this.#answered) this.#answered = number;
  }

  /**
   * Whether the server has answered a later command. On one connection this means that the client has sent this command to another server.
   */
  isPassed({ number }: One): boolean {
    return number < this.#answered;
  }

  /**
   * The command that has waited longest for its answer, and since when. While the server answers other
   * commands, this command does not count as waiting.
   */
  get longestUnanswered(): { command: One; since: number } | undefined {
    const command = this.#open.first;
    if (!command) return undefined;
    const { countsFrom } = command;
    return { command, since: this.isPassed(command) ? countsFrom : Math.max(countsFrom, this.#answeredAt) };
  }
}
