import type { PGlite } from '@electric-sql/pglite';
import { preparedPGlite } from '../support/prepared-pglite.js';

let database: Promise<PGlite> | undefined;
let tables = 0;

/** The PGlite of this process. */
export function pglite(): Promise<PGlite> {
  database ??= preparedPGlite();
  return database;
}

/** Options for locks in a new table of it, patient enough for a busy machine. */
export async function onPGlite() {
  return { postgres: await pglite(), table: `locks_${++tables}`, createTable: true, commandTimeoutMs: 20_000 };
}
