import type { Linked } from '../../../core/time/linked-list.js';
import type { CommandFault, Route, ScriptCall } from '../client/redis-client.js';
import type { Script } from './script.js';
import type { ScriptFault } from './script-fault.js';

/** What a script answered for one operation. Numbers come as strings from clients with `stringNumbers`. */
export type Reply = number | string | (number | string)[];

/** What one caller asked for. */
export interface Operation {
  read: (answer: Reply | ScriptFault) => unknown;
  /** Is given what was read. */
  told: (value: never) => void;
  failed: (reason: unknown) => void;
}

/** Is told what became of a command. */
export interface CommandListener {
  answered(command: Command, reply: unknown): void;
  failed(command: Command, fault: CommandFault): void;
}

/** One call of a script: open until the server has answered. */
export class Command implements ScriptCall, Linked<Command> {
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
    private readonly listener: CommandListener,
  ) {}

  /** What was given up meanwhile has not run: so it stays. */
  get isWanted(): boolean {
    return this.operations.length > 0;
  }

  answered(reply: unknown): void {
    this.listener.answered(this, reply);
  }

  failed(fault: CommandFault): void {
    this.listener.failed(this, fault);
  }
}

/** One that is still to be sent, and takes more operations. */
export interface Gathered extends Command {
  keys: string[];
  args: (string | number)[];
}

const NOTHING: never[] = [];

/** A reader that throws must not keep the others of its command from their answers. */
export function answered({ read, told, failed }: Operation, answer: Reply | ScriptFault): void {
  try {
    told(read(answer) as never);
  } catch (error) {
    failed(error);
  }
}

/** Becomes an unhandled rejection: it is a bug. */
export function throwLater(error: unknown): void {
  void Promise.reject(error);
}

/** None of its operations has an answer. */
export function fail(command: Command, fault: ScriptFault): void {
  for (const operation of taken(command)) answered(operation, fault);
}

/** Its operations, which are answered now: what may live on in old memory for a while should hold little. */
export function taken(command: Command): Operation[] {
  const { operations } = command;
  command.operations = command.keys = command.args = NOTHING;
  return operations;
}
