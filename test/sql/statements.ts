import { postgresStatements } from '../../lib/stores/sql/postgres/statements.js';

export { ddl, postgresStatements, type PostgresStatement } from '../../lib/stores/sql/postgres/statements.js';

/** The statements on the default table of locks. */
export const statements = postgresStatements('"resource_lock"');

/**
 * The request for one lock in the statement that takes, releases and hands over: an element of each of its arguments.
 */
export interface Asked {
  readonly key: string;
  /** The owner that releases it. */
  readonly give?: string;
  /** The owner that asks for it. */
  readonly owner?: string;
  readonly ttlMs?: number;
  readonly turns?: number;
  /** The place to take, or to give up. */
  readonly ticket?: string;
  readonly number?: number;
  /** Whether it takes a place if it gets no grant. */
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
