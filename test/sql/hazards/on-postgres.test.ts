import pg from 'pg';
import { afterAll, beforeAll, onTestFinished } from 'vitest';
import type { SqlLockModuleOptions } from 'nest-redis-lock/sql';
import { openSqlLocks } from '../../support/open-locks.js';
import { PostgresServer } from '../../support/postgres-server.js';
import { describeHazards, type HazardDatabase, type Pool } from './hazards.js';
import { blocked, connectTo, PATIENT, rowOf } from './stage.js';

let server: PostgresServer;
beforeAll(async () => {
  server = await PostgresServer.start({ deadlock_timeout: '20ms' });
});
afterAll(() => server.stop());

function poolOf(most: number): Pool {
  const pool = new pg.Pool({ connectionString: server.url, max: most });
  pool.on('error', () => {});
  onTestFinished(() => void pool.end());
  return { source: pool, query: (text, values) => pool.query(text, values), take: () => pool.connect() };
}

describeHazards('PostgreSQL', async (): Promise<HazardDatabase> => {
  const url = (port = server.port) => `postgres://postgres@127.0.0.1:${port}/postgres`;
  const application_name = 'an application';
  const connect = (to = url()) => connectTo({ url: to }, { application_name });
  return {
    port: server.port,
    url,
    run: (text) => server.query(text),
    connect,
    driverConnection: connect,
    pool: poolOf,
    locks: (source = url(), options = {}) =>
      openSqlLocks({ postgres: source, ...PATIENT, ...options } as SqlLockModuleOptions),
    rowOf: (key) => rowOf(server, key),
    sessionWaits: () => blocked(server, application_name),
    deadlock: '40P01',
    folding: `CREATE COLLATION IF NOT EXISTS folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
      ALTER TABLE shedlock ALTER name TYPE varchar(64) COLLATE folding`,
    padding: 'ALTER TABLE shedlock ALTER name TYPE char(64) COLLATE "C"',
  };
});
