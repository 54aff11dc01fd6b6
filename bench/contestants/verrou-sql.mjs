import { Verrou } from '@verrou/core';
import { knexStore } from '@verrou/core/drivers/knex';
import knex from 'knex';
import { MARIADB, POSTGRES } from './sql-clients.mjs';

const CLIENTS = { postgres: ['pg', POSTGRES], mariadb: ['mysql2', MARIADB] };

export function open({ ports: [port], ttlMs, settings: { dialect } }) {
  const [client, access] = CLIENTS[dialect];
  const connection = knex({ client, connection: { ...access, port } });
  const verrou = new Verrou({
    default: 'sql',
    stores: { sql: { driver: knexStore({ connection, dialect: client }) } },
  });
  return {
    async turn(key, work) {
      const lock = verrou.createLock(key, ttlMs);
      if (!(await lock.acquire())) throw new Error(`${key} was not acquired`);
      await work({ held: () => !lock.isExpired() });
      return lock.release();
    },
    close: () => connection.destroy(),
  };
}
