import { LinkedList, type Linked } from '../time/linked-list.js';

/**
 * How many commands are in flight to a server at most: enough that it is never idle while the client reads answers and
 * writes the next commands; few enough that an extension which comes now is answered some milliseconds later.
 */
export const COMMANDS_IN_FLIGHT = 32;

/** How many commands of one kind that are not full wait for operations which can join them. */
const ALIKE_AT_ONCE = 8;

/**
 * The order of commands that wait for the same server: up to `RELEASE` what frees locks, then what extends them, what acquires them,
 * and behind that all that is only looked at.
 */
export const [RELEASE, EXTENSION, ACQUISITION] = [1, 2, 3] as const;

const NOTHING: never[] = [];

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
  readonly wanted?: Wanted;
}

/** What is sent to a server in one piece, for one operation or for many: open until the server has answered. */
export abstract class Command<Self, Part extends Operation> implements Sending, Linked<Self> {
  operations: Part[] = [];
  /** When it was last sent, by the clock of the time limits. */
  countsFrom = 0;
  /** Its place in the order in which the commands of its lane were sent; 0 before that. */
  number = 0;
  list?: { remove(command: Self): void };
  next?: Self;
  previous?: Self;

  /** @param most how many operations it is for at most */
  constructor(
    readonly order: number,
    private readonly most: number,
  ) {}

  /** False once its operations were given up. */
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

  /** Whether an operation of the same kind can be done by this command. */
  abstract suits(operation: Part): boolean;

  /** Takes out the operations that are not wanted any more. @returns them */
  withdrawn(): readonly Part[] {
    const isWithdrawn = ({ wanted }: Part) => wanted?.isWanted === false;
    const withdrawn = this.operations.filter(isWithdrawn);
    if (withdrawn.length > 0) this.operations = this.operations.filter((operation) => !isWithdrawn(operation));
    return withdrawn;
  }

  /** Takes the operations out of a command that is settled: it may live on in old memory, and should hold little. */
  taken(): Part[] {
    const { operations } = this;
    this.operations = NOTHING;
    return operations;
  }
}

/** A command in a lane, whatever its operations are. */
type AnyCommand<Self> = Command<Self, Operation>;

/** Two lists of commands that are taken from in turn, so that neither holds up the other. */
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
 * The commands to one server: a bounded number in flight, and behind them those that wait in this process. Releases and
 * extensions are sent first, in turn; then acquires, in turn with inspections.
 */
export class Lane<One extends AnyCommand<One>> {
  /** In flight and not overdue, in the order in which they were sent. */
  readonly #open = new LinkedList<One>();
  readonly #urgent = new InTurn<One>();
  readonly #others = new InTurn<One>();
  /** The last commands of each kind, which may take more operations. */
  #latest = new Map<unknown, One[]>();
  /** The number of the last command that was sent. */
  #sent = 0;
  /** The highest number of a command that was answered. */
  #answered = 0;
  #answeredAt = -Infinity;

  /** @param mostInFlight how many commands are in flight at most */
  constructor(private readonly mostInFlight = COMMANDS_IN_FLIGHT) {}

  /** Whether a command may be sent. */
  get hasRoom(): boolean {
    return this.#open.size < this.mostInFlight;
  }

  /** Whether no command is in flight, and none waits. */
  get isIdle(): boolean {
    return this.#open.size === 0 && this.#urgent.isEmpty && this.#others.isEmpty;
  }

  /** Finds a command of a kind that waits, and that an operation can join. */
  commandFor(kind: unknown, operation: Operation): One | undefined {
    return this.#latest.get(kind)?.find((command) => command.isWaiting && !command.isFull && command.suits(operation));
  }

  /** Puts a command behind those of its order that wait. */
  wait(kind: unknown, command: One): void {
    const { order } = command;
    if (order <= EXTENSION) this.#urgent.push(command, order <= RELEASE ? 0 : 1);
    else this.#others.push(command, order === ACQUISITION ? 0 : 1);
    const latest = this.#latest.get(kind)?.filter(({ isWaiting, isFull }) => isWaiting && !isFull) ?? [];
    this.#latest.set(kind, [...latest.slice(1 - ALIKE_AT_ONCE), command]);
  }

  /** Takes the next command that waits, if there is room for it. */
  next(): One | undefined {
    if (!this.hasRoom) return undefined;
    const next = this.#urgent.take() ?? this.#others.take();
    // A new Map: one that is cleared drags its earlier tables along in old memory.
    if (!next && this.#latest.size > 0) this.#latest = new Map();
    return next;
  }

  /** Notes that a command is about to be sent. @param now by the clock of the time limits */
  sending(command: One, now: number): void {
    command.countsFrom = now;
    command.number = ++this.#sent;
    this.#open.push(command);
  }

  /** Notes that a command is not in flight any more, or overdue. */
  remove(command: One): void {
    this.#open.remove(command);
  }

  /** Notes that the server has answered, or refused, a command. */
  heard({ number }: One, now: number): void {
    this.#answeredAt = now;
    if (number > this.#answered) this.#answered = number;
  }

  /**
   * Whether the server has answered commands that were sent after this one. On one connection that does not happen,
   * unless the client has passed the command on to another server.
   */
  isPassed({ number }: One): boolean {
    return number < this.#answered;
  }

  /**
   * The command that the server has owed the answer to for the longest time, and since when: a server that answers one
   * command after the other is at work.
   */
  get owed(): { command: One; since: number } | undefined {
    const command = this.#open.first;
    if (!command) return undefined;
    const { countsFrom } = command;
    return { command, since: this.isPassed(command) ? countsFrom : Math.max(countsFrom, this.#answeredAt) };
  }
}
