/**
 * Connections to a database, in one form: `rows` of a query, the number of rows that a statement `changes`, and whether
 * it `isOpen`.
 */
import mysql from 'mysql2/promise';
import pg from 'pg';

/** The requirements of the databases of a cell. */
export const POSTGRES = { host: '127.0.0.1', user: 'postgres', database: 'postgres' };
export const MARIADB = { host: '127.0.0.1', user: 'root', database: 'mysql' };

export async function connectPostgres(port) {
  const client = new pg.Client({ ...POSTGRES, port });
  const connection = {
    isOpen: true,
    rows: async (text, values) => (await client.query(text, values)).rows,
    changes: async (text, values) => (await client.query(text, values)).rowCount,
    end: () => client.end(),
  };
  for (const event of ['error', 'end']) client.on(event, () => (connection.isOpen = false));
  await client.connect();
  return connection;
}

export async function connectMariaDb(port) {
  const client = await mysql.createConnection({ ...MARIADB, port, namedPlaceholders: true });
  const connection = {
    isOpen: true,
    rows: async (text, values) => (await client.query(text, values))[0],
    changes: async (text, values) => (await client.query(text, values))[0].affectedRows,
    end: () => client.end(),
  };
  for (const event of ['error', 'end']) client.connection.on(event, () => (connection.isOpen = false));
  return connection;
}

export const CONNECT = { postgres: connectPostgres, mariadb: connectMariaDb };

/** A connection that reconnects when it breaks, like a pool. */
export function reconnecting(dialect, port) {
  let opening;
  return async () => {
    const last = await opening?.catch(() => {});
    if (!last?.isOpen) opening = CONNECT[dialect](port);
    return opening;
  };
}
