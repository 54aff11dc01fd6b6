import { postgresStatements } from '../../lib/stores/sql/postgres/statements.js';

export { ddl, postgresStatements, type PostgresStatement } from '../../lib/stores/sql/postgres/statements.js';

/** Those on the table that locks have if nobody says another. */
export const statements = postgresStatements('"resource_lock"');

/** What one lock is asked for by the statement that takes, gives and hands over: an element of each of its arguments. */
export interface Asked {
  readonly key: string;
  /** Who gives it back. */
  readonly give?: string;
  /** Who asks for it. */
  readonly owner?: string;
  readonly ttlMs?: number;
  readonly turns?: number;
  /** Whose place is taken, or given up. */
  readonly ticket?: string;
  readonly number?: number;
  /** Whether a place is taken in vain of a grant. */
  readonly queues?: boolean;
}

/** The arguments of that statement. */
export function turnValues(asked: readonly Asked[]): unknown[] {
  return [
    asked.map(({ key }) => key),
    asked.map(({ give = null }) => give),
    asked.map(({ owner = null }) => owner),
    asked.map(({ ticket = null }) => ticket),
    asked.map(({ ttlMs = 20_000 }) => ttlMs),
    asked.map(({ turns = 1 }) => turns),
    asked.map(({ number = null }) => number),
    asked.map(({ queues = false }) => queues),
    asked.map(() => 1),
  ];
}
