import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import mysql from 'mysql2';
import mysqlPromise from 'mysql2/promise';
import pg from 'pg';
import { runnerImport } from 'vite';

/** The raw locks: a row for each lock that is held. */
const RAW_TABLE = 'CREATE TABLE raw_lock (name varchar(255) PRIMARY KEY, owner varchar(64) NOT NULL)';

/**
 * The databases of the measured locks, and the handwritten locks there:
 *
 *   start() → its URL, with the table of the raw locks
 *   options(url) → the options of the library
 *   countSent(add): calls `add` for each message that the library sends in this process
 *   connect(url) → a client of the driver
 *   take(client, name, owner) → whether it inserted the row; give(client, name, owner) deletes it
 *   lock(client), unlock(client): an advisory lock, for which the connection waits
 *   tableBytes(client) → the size of the library's table
 *   notify(url) → a bare wake-up, if the database has one
 */
export const DATABASES = {
  postgres: {
    async start() {
      const { port } = await (await launcher('postgres')).launchPostgres({ dir: folder('postgres') });
      return withRawTable(this, `postgres://postgres@127.0.0.1:${port}/postgres`);
    },

    options: (url) => ({ postgres: url }),

    countSent(add) {
      // oxlint-disable-next-line typescript/unbound-method -- called with its client below
      const { query } = pg.Client.prototype;
      pg.Client.prototype.query = function countingQuery(config, ...rest) {
        if (config?.name?.startsWith('nest_redis_lock')) add();
        return query.call(this, config, ...rest);
      };
    },

    async connect(url) {
      const client = new pg.Client(url);
      client.on('error', () => {});
      await client.connect();
      return client;
    },

    async take(client, name, owner) {
      const text = 'INSERT INTO raw_lock VALUES ($1, $2) ON CONFLICT DO NOTHING';
      return (await client.query({ name: 'take', text, values: [name, owner] })).rowCount === 1;
    },
    give: (client, name, owner) =>
      client.query({
        name: 'give',
        text: 'DELETE FROM raw_lock WHERE name = $1 AND owner = $2',
        values: [name, owner],
      }),

    lock: (client) => client.query({ name: 'lock', text: 'SELECT pg_advisory_lock(42)' }),
    unlock: (client) => client.query({ name: 'unlock', text: 'SELECT pg_advisory_unlock(42)' }),

    async tableBytes(client) {
      const [{ bytes }] = (await client.query(`SELECT pg_relation_size('resource_lock') AS bytes`)).rows;
      return Number(bytes);
    },

    /** A notification from one connection to another: the minimum cost of a wake-up. */
    async notify(url) {
      const [sender, listener] = [await this.connect(url), await this.connect(url)];
      await listener.query('LISTEN bench_wake_up');
      return {
        acquire: async () => 'held',
        wait: () => new Promise((resolve) => listener.once('notification', () => resolve('woken'))),
        release: (lock) =>
          lock === 'held' ? sender.query({ name: 'notify', text: `SELECT pg_notify('bench_wake_up', '')` }) : undefined,
      };
    },
  },

  mariadb: {
    async start() {
      const { port } = await (await launcher('mariadb')).launchMariaDb({ dir: folder('mariadb') });
      const url = `mysql://root@127.0.0.1:${port}/`;
      const admin = await this.connect(url);
      await admin.query('CREATE DATABASE bench');
      await admin.end();
      return withRawTable(this, `${url}bench`);
    },

    options: (url) => ({ mysql: url }),

    /** A transaction travels in one message. */
    countSent(add) {
      // oxlint-disable-next-line typescript/unbound-method -- called with its connection below
      const { query } = mysql.Connection.prototype;
      mysql.Connection.prototype.query = function countingQuery(...args) {
        if (this.config.connectAttributes?.program_name === 'nest-redis-lock') add();
        return query.apply(this, args);
      };
    },

    async connect(url) {
      const client = await mysqlPromise.createConnection(url);
      client.on('error', () => {});
      return client;
    },

    async take(client, name, owner) {
      const [{ affectedRows }] = await client.execute('INSERT IGNORE INTO raw_lock VALUES (?, ?)', [name, owner]);
      return affectedRows === 1;
    },
    give: (client, name, owner) => client.execute('DELETE FROM raw_lock WHERE name = ? AND owner = ?', [name, owner]),

    lock: (client) => client.execute("SELECT GET_LOCK('bench', 120)"),
    unlock: (client) => client.execute("SELECT RELEASE_LOCK('bench')"),

    async tableBytes(client) {
      const text = `SELECT file_size AS bytes FROM information_schema.innodb_sys_tablespaces WHERE name = 'bench/resource_lock'`;
      const [[{ bytes }]] = await client.query(text);
      return Number(bytes);
    },
  },
};

async function launcher(database) {
  const path = fileURLToPath(new URL(`../../servers/launch-${database}.ts`, import.meta.url));
  return (await runnerImport(path, { configFile: false })).module;
}

function folder(database) {
  return mkdtempSync(join(tmpdir(), `bench-${database}-`));
}

async function withRawTable(database, url) {
  const admin = await database.connect(url);
  await admin.query(RAW_TABLE);
  await admin.end();
  return url;
}
