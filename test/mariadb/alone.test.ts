import { format } from 'mysql2';
import { ddl } from 'nest-redis-lock/sql';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openMysql, type MysqlClient, type Written } from '../../lib/stores/sql/mysql/mysql-source.js';
import { mysqlStatements, type MysqlStatements } from '../../lib/stores/sql/mysql/statements.js';
import type { Row } from '../../lib/stores/sql/sql-client.js';
import { freshKey } from '../support/claims.js';
import { mariaDb, PATIENT } from './server.js';

const statements = mysqlStatements('`resource_lock`');
const TTL_MS = 600_000;
/** After all times, so that the next token is one larger. */
const FENCE = 4_000_000_000_000_000;
/** Before all times, so that the next token is the time. */
const OLD_FENCE = 7;

/** The rows that a change of the lock of `me` may find: holder, fence, is_kept, remaining seconds. */
const STATES: Record<string, [holder: string, fence: number, isKept: number, leftS: number] | undefined> = {
  'no row': undefined,
  'a lock that was released': ['other', FENCE, 0, -1_000_000_000],
  'a lock whose last token is old': ['other', OLD_FENCE, 0, -1],
  'a lease of its own that has ended': ['me', FENCE, 0, -1],
  'a lock of its own': ['me', FENCE, 0, 500],
  'a lock of its own that is kept': ['me', FENCE, 1, 500],
  'a lock of its own that was kept': ['me', FENCE, 1, -1],
  'a lock of another': ['other', FENCE, 0, 500],
  'a lock of another that is kept': ['other', FENCE, 1, 500],
};

/** The arguments of each change, except the key. */
const CHANGES: [string, keyof MysqlStatements, unknown[]][] = [
  ['an attempt', 'acquire', ['me', TTL_MS, 1]],
  ['an attempt for several tokens', 'acquire', ['me', TTL_MS, 3]],
  ['an extension', 'extend', ['me', TTL_MS, 4]],
  ['an end that keeps the lock', 'keep', ['me', TTL_MS, 0]],
  ['a release', 'release', ['me']],
  ['a transfer', 'transfer', ['me', 'next', TTL_MS, false, false]],
  ['a transfer with a token', 'transfer', ['me', 'next', TTL_MS, true, false]],
];

const server = await mariaDb();
await server.query(ddl('mysql'));

describe('A change of one lock', () => {
  async function connected(): Promise<MysqlClient> {
    const source = await openMysql(server.url, PATIENT.commandTimeoutMs);
    const client = await source.connect(() => {});
    onTestFinished(() => client.close());
    return client;
  }

  async function insert(key: string, state: string): Promise<void> {
    const row = STATES[state];
    if (!row) return;
    const [holder, fence, isKept, leftS] = row;
    await server.query(
      `INSERT INTO resource_lock VALUES (?, ?, ?, ?, 2, '2001-01-01', '2001-01-01', UTC_TIMESTAMP(6) + INTERVAL ? SECOND)`,
      [Buffer.from(key), Buffer.from(holder), fence, isKept, leftS],
    );
  }

  /** The contents of the row of a key, with the meaning of its times. */
  async function rowOf(key: string): Promise<Row | undefined> {
    const text = `SELECT CAST(resource_lock_value AS char) AS holder, is_kept, calls_behind, acquired_at > '2001-01-01' AS is_new,
      update_time > '2001-01-01' AS is_changed,
      IF(fence < ${FENCE}, fence - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', acquired_at), fence - ${FENCE}) AS fence,
      IF(expires_at = '1970-01-01', 'released', ROUND(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), expires_at), -2)) AS leftS
      FROM resource_lock WHERE resource_lock_key = ?`;
    return (await server.query(text, [Buffer.from(key)]))[0];
  }

  /** An answer without its key, and with times in hundreds of seconds. */
  function answerOf(rows: readonly Row[], key: string): Record<string, unknown> | undefined {
    const row = rows.find((each) => each.key === key);
    if (!row) return undefined;
    const { key: _, acquired_us: _acquired, held_for: _held, calls_behind: _calls, ...rest } = row;
    const hundreds = (ms: unknown) => Math.round(Number(ms) / 100_000);
    const fence = rest.fence === undefined ? undefined : Number(rest.fence);
    return {
      ...rest,
      ...(rest.remaining !== undefined && { remaining: hundreds(rest.remaining) }),
      // The token of a row that was taken at its time has other digits each time.
      ...(fence !== undefined && { fence: fence < FENCE && fence > OLD_FENCE ? 'the time' : fence }),
    };
  }

  describe.each(CHANGES)('by %s', (_, name, asked) => {
    async function compare(state: string, begin?: (keys: readonly string[]) => Promise<void>): Promise<void> {
      const client = await connected();
      const [alone, together, other] = [freshKey(), freshKey(), freshKey()] as const;
      for (const key of [alone, together]) await insert(key, state);
      await insert(other, 'a lock of its own');
      await begin?.([alone, together]);
      const run = (...keys: string[]) =>
        statements[name].run(client, [keys, ...asked.map((value) => keys.map(() => value))]);
      const ofOne = answerOf(await run(alone), alone);
      expect(ofOne).toEqual(answerOf(await run(together, other), together));
      expect(await rowOf(alone)).toEqual(await rowOf(together));
    }

    it.each(Object.keys(STATES))(
      'that finds %s has the same answer and leaves the same row as together with others [G840]',
      (state) => compare(state),
    );

    it.each(['a lock that was released', 'a lock of its own', 'a lock of another'])(
      'that finds %s whose row another session has locked has the same answer as together with others [G842]',
      async (state) => {
        await compare(state, async (keys) => {
          const session = await connected();
          const texts = ['START TRANSACTION', `SELECT 1 FROM resource_lock WHERE resource_lock_key IN (?) FOR UPDATE`];
          await session.write(texts.join(';\n'), [keys.map((key) => Buffer.from(key))]);
        });
      },
    );
  });

  it.each([
    ['one lock that is held by another', ['a lock of another'], 1],
    ['several locks that are held by others', ['a lock of another', 'a lock of another'], 2],
    ['one lock that is free', ['a lock that was released'], 0],
    ['two locks of which one is free', ['a lock that was released', 'a lock of another'], 1],
  ])('locks no other row than what it changes: an attempt for %s [G841]', async (_, states, lockable) => {
    const client = await connected();
    const keys = states.map(() => freshKey());
    for (const [at, key] of keys.entries()) await insert(key, states[at]!);
    const seen: number[] = [];
    const look = async () => {
      const text = 'SELECT 1 FROM resource_lock WHERE resource_lock_key IN (?) FOR UPDATE SKIP LOCKED';
      seen.push((await server.query(text, [keys.map((key) => Buffer.from(key))])).length);
    };
    const columns = ['me', TTL_MS, 1].map((value) => keys.map(() => value));
    await statements.acquire.run(stepwise(client, look), [keys, ...columns]);
    expect(seen).toEqual([lockable]);
  });
});

/**
 * Sends the statements of a message one by one.
 * @param beforeCommit called while a transaction has its locks
 */
function stepwise(client: MysqlClient, beforeCommit: () => Promise<void>): MysqlClient {
  return {
    ...client,
    write: async (sql, values) => {
      const answers: unknown[] = [];
      for (const text of format(sql, [...values] as never[]).split(';\n')) {
        if (text === 'COMMIT') await beforeCommit();
        answers.push(await client.query({ name: 'step', text }, []));
      }
      return answers as Written[];
    },
  };
}
