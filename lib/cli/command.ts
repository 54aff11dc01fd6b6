import type { CommandLine } from './command-line.js';
import type { Servers } from './servers.js';
import type { Terminal } from './terminal.js';

/** A call of a command. */
export interface Call extends Pick<CommandLine, 'options' | 'rest'> {
  /** Its arguments: as many as the command takes. */
  args: string[];
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
