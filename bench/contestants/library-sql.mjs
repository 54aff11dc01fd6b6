import mysql from 'mysql2/promise';
import pg from 'pg';
import { library } from './library.mjs';
import { MARIADB, POSTGRES } from './sql-clients.mjs';

const POOLS = {
  postgres: (port) => new pg.Pool({ ...POSTGRES, port }),
  mysql: (port) => mysql.createPool({ ...MARIADB, port }),
};

/** @param settings `option`: the option of the module that takes the pool */
export async function open({ ports: [port], ttlMs, settings: { option } }) {
  const { composeLocks } = await library('compose/composition.js');
  const { SQL } = await library('compose/sql-lock-options.js');
  const pool = POOLS[option](port);
  pool.on('error', () => {}); // each query reports its own failure
  const { service } = await composeLocks(SQL, { [option]: pool, ttlMs, createTable: true }).open();
  return {
    turn: (key, work) =>
      service.withLock(key, {}, (lock) => work({ held: () => lock.isHeld, token: lock.fencingToken })),
    close: () => service.onApplicationShutdown(),
  };
}
