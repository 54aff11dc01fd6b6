/**
 * The statements of ShedLock (Java) with the time of the database, repeated until one succeeds: ShedLock itself skips
 * the work.
 */
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { reconnecting } from './sql-clients.mjs';

const RETRY_MS = 200;
const COLUMNS =
  'name VARCHAR(64) NOT NULL PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL, locked_by VARCHAR(255) NOT NULL';
const CREATE = `CREATE TABLE IF NOT EXISTS shedlock (${COLUMNS})`;

const NOW = "timezone('utc', CURRENT_TIMESTAMP)";
const UNTIL = `${NOW} + cast($2 AS interval)`;
const DIALECTS = {
  postgres: {
    during: (ttlMs) => `${ttlMs} milliseconds`,
    acquire: [
      `INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ($1, ${UNTIL}, ${NOW}, $3)
       ON CONFLICT (name) DO UPDATE SET lock_until = ${UNTIL}, locked_at = ${NOW}, locked_by = $3
       WHERE shedlock.name = $1 AND shedlock.lock_until <= ${NOW}`,
    ],
    release: `UPDATE shedlock SET lock_until = ${NOW} WHERE name = $1 AND locked_by = $2`,
    valuesOf: (key, during, by) => [key, during, by],
    releaseValuesOf: (key, by) => [key, by],
  },
  mariadb: {
    during: (ttlMs) => ttlMs * 1_000,
    acquire: [
      `INSERT IGNORE INTO shedlock (name, lock_until, locked_at, locked_by)
       VALUES (:key, TIMESTAMPADD(MICROSECOND, :during, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), :by)`,
      `UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, :during, UTC_TIMESTAMP(3)), locked_at = UTC_TIMESTAMP(3), locked_by = :by
       WHERE name = :key AND lock_until <= UTC_TIMESTAMP(3)`,
    ],
    release: 'UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = :key AND locked_by = :by',
    valuesOf: (key, during, by) => ({ key, during, by }),
    releaseValuesOf: (key, by) => ({ key, by }),
  },
};

export async function open({ ports: [port], ttlMs, settings: { dialect } }) {
  const { during, acquire, release, valuesOf, releaseValuesOf } = DIALECTS[dialect];
  const connection = reconnecting(dialect, port);
  const by = hostname(); // its default
  const values = (key) => valuesOf(key, during(ttlMs), by);
  await (await connection()).rows(CREATE).catch(() => {}); // several processes at the same time

  const isAcquired = async (key) => {
    for (const statement of acquire) if ((await (await connection()).changes(statement, values(key))) > 0) return true;
    return false;
  };
  return {
    async turn(key, work) {
      while (!(await isAcquired(key))) await sleep(RETRY_MS);
      await work({ held: () => true });
      return (await connection()).changes(release, releaseValuesOf(key, by));
    },
    close: async () => (await connection()).end(),
  };
}
