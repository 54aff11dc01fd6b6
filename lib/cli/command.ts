import type { CommandLine } from './command-line.js';
import type { Servers } from './servers.js';
import type { Terminal } from './terminal.js';

/** A call of a command. */
export interface Call extends Pick<CommandLine, 'options' | 'rest'> {
  /** The key of a command that takes one. */
  key: string;
  /** The pattern of `ls`. */
  pattern?: string;
  servers: Servers;
  /** First part of every key in Redis. */
  keyPrefix?: string;
  env: NodeJS.ProcessEnv;
  terminal: Terminal;
  limits: Limits;
}

/** Time limits, in milliseconds. */
export interface Limits {
  /** How long the servers may take to be reached. */
  connectMs: number;
  /** How long a command whose lock is lost may take to end by itself. */
  graceMs: number;
  /** How often `--watch` looks again. */
  watchMs: number;
}

export const LIMITS: Limits = { connectMs: 5_000, graceMs: 5_000, watchMs: 2_000 };

/** Does what a command is for. @returns the code to exit with */
export type Action = (call: Call) => Promise<number>;

/** The exit codes of commands. Codes from 64 to 78 are from sysexits.h. */
export const EXIT = {
  ok: 0,
  /** The answer is no: the lock is free, the doctor found errors, nothing was done. */
  no: 1,
  /** The doctor found warnings, with `--strict`. */
  warnings: 2,
  usage: 64,
  /** The servers cannot be reached or used. */
  unavailable: 69,
  /** An internal error. */
  fault: 70,
  /** Another holder kept the lock for the whole wait. */
  busy: 75,
  /** The lock was lost while the command ran. */
  lost: 76,
  cannotRun: 126,
  notFound: 127,
} as const;
