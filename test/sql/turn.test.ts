import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ddl, postgresStatements } from '../../lib/stores/sql/postgres/statements.js';
import { freshKey } from '../support/claims.js';
import { PostgresServer } from '../support/postgres-server.js';

const TABLE = '"resource_lock"';
const { extend, give, inspect, take, turn } = postgresStatements(TABLE);

/** What one lock is asked for: see the statement. */
interface Asked {
  key: string;
  give?: string;
  owner?: string;
  ticket?: string;
  ttlMs?: number;
  turns?: number;
  number?: number;
  queues?: boolean;
  calls?: number;
}

type Answer = Record<string, number | string | null>;

let server: PostgresServer;
let client: pg.Client;
beforeAll(async () => {
  server = await PostgresServer.start();
  client = await connected();
  await client.query(ddl(TABLE));
});
afterAll(async () => {
  await client.end();
  await server.stop();
});

async function connected(): Promise<pg.Client> {
  const made = new pg.Client(server.url);
  await made.connect();
  return made;
}

/** Runs the statement once for several locks. @returns its rows in their order */
async function turns(...asked: Asked[]): Promise<Answer[]> {
  const columns = [
    asked.map(({ key }) => key),
    asked.map(({ give }) => give ?? null),
    asked.map(({ owner }) => owner ?? null),
    asked.map(({ ticket }) => ticket ?? null),
    asked.map(({ ttlMs = 20_000 }) => ttlMs),
    asked.map(({ turns: count = 1 }) => count),
    asked.map(({ number }) => number ?? null),
    asked.map(({ queues = false }) => queues),
    asked.map(({ calls = 1 }) => calls),
  ];
  const answers = await client.query<Answer>(turn.text, columns);
  const number = (cell: number | string | null) => (/^\d+(\.\d+)?$/.test(String(cell)) ? Number(cell) : cell);
  const rows = answers.rows.map((row) => mapValues(row, number));
  // There is no row for a lock that is not known.
  return asked.map(({ key }) => rows.find((row) => row.key === key) ?? { key, is_known: 0 });
}

function mapValues(row: Answer, map: (cell: number | string | null) => number | string | null): Answer {
  return Object.fromEntries(Object.entries(row).map(([name, cell]) => [name, map(cell)]));
}

async function once(asked: Asked): Promise<Answer> {
  return (await turns(asked))[0]!;
}

/** Takes a lock alone. @returns whether that was so simple */
async function takesAlone(key: string, owner: string): Promise<boolean> {
  return (await client.query(take.text, [key, owner, 20_000])).rows.length > 0;
}

/** Gives a lock alone. @returns whether that was so simple */
async function givesAlone(key: string, owner: string): Promise<boolean> {
  return (await client.query(give.text, [key, owner])).rows.length > 0;
}

/** Asks for a lock, and waits for it in the queue. */
function waits(key: string, ticket: string, number?: number): Promise<Answer> {
  return once({ key, owner: ticket, ticket, number, queues: true });
}

async function rowOf(key: string): Promise<{ holder: string; fence: number; waiters: string[]; isHeld: boolean }> {
  const { rows } = await client.query(
    `SELECT resource_lock_value AS holder, fence::float8 AS fence, waiters, expires_at > clock_timestamp() AS "isHeld"
     FROM resource_lock WHERE resource_lock_key = $1`,
    [key],
  );
  return rows[0] as Awaited<ReturnType<typeof rowOf>>;
}

async function queueOf(key: string): Promise<string[]> {
  return (await rowOf(key)).waiters.map((entry) => entry.split(' ')[2]!);
}

/** Lets the lease of the lock end. */
const expire = (key: string) =>
  client.query(
    `UPDATE resource_lock SET expires_at = clock_timestamp() - interval '1 ms' WHERE resource_lock_key = $1`,
    [key],
  );

/** Makes it look as if a process had given its last sign so long ago. */
const silence = (key: string, ticket: string, ms: number) =>
  client.query(
    `UPDATE resource_lock SET waiters = ARRAY(
       SELECT CASE WHEN split_part(entry, ' ', 3) <> $2 THEN entry
         ELSE regexp_replace(entry, '[0-9]+ ([0-9]+)$', (split_part(entry, ' ', 4)::bigint - $3::bigint * 1000) || ' \\1') END
       FROM unnest(waiters) WITH ORDINALITY AS w(entry, at) ORDER BY at)
     WHERE resource_lock_key = $1`,
    [key, ticket, ms],
  );

describe('The statement that takes locks, gives them back and hands them over', () => {
  it('hands a lock that is given back to the first in its queue, with a block of tokens and the number of the next [G650]', async () => {
    const key = freshKey();
    const { last_token } = await once({ key, owner: 'a' });
    await once({ key, owner: 'b', ticket: 'b', turns: 7, number: 300, queues: true });
    await once({ key, owner: 'c', ticket: 'c', number: 200, queues: true });
    await once({ key, owner: 'd', ticket: 'd', number: 400, queues: true });
    const given = await once({ key, give: 'a' });
    expect(given).toMatchObject({ gives: 1, is_taken: 0, granted: 'c', bound: 300 });
    expect(given.first_token).toBeGreaterThan(Number(last_token));
    const next = await once({ key, give: 'c' });
    expect(next).toMatchObject({ granted: 'b', bound: 400 });
    expect(next.first_token).toBeGreaterThan(Number(given.last_token));
    expect(Number(next.last_token) - Number(next.first_token)).toBe(6);
    expect(await rowOf(key)).toMatchObject({ holder: 'b', fence: next.last_token, isHeld: true });
    expect(await queueOf(key)).toEqual(['d']);
  });

  it('passes over those who are silent while another asks, and makes nobody silent by the time alone [G651]', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    for (const [at, ticket] of ['dead', 'gone', 'alive', 'slow'].entries()) await waits(key, ticket, 1_000 + at);
    for (const ticket of ['dead', 'gone']) await silence(key, ticket, 2_100);
    await silence(key, 'slow', 1_500);
    const { rows } = await client.query(inspect.text, [[key]]);
    expect(rows[0].waiting).toBe('alive 1\nslow 1');
    expect(await once({ key, give: 'a' })).toMatchObject({ granted: 'alive', bound: 1_003 });
    expect(await queueOf(key)).toEqual(['slow']);
    expect(await waits(key, 'gone', 1_001)).toMatchObject({ had_place: 0 });
    expect(await queueOf(key)).toEqual(['gone', 'slow']);

    const paused = freshKey();
    await once({ key: paused, owner: 'a' });
    for (const ticket of ['b', 'c']) {
      await waits(paused, ticket);
      await silence(paused, ticket, 5_000);
    }
    expect(await once({ key: paused, give: 'a' })).toMatchObject({ granted: 'b' });
    expect(await queueOf(paused)).toEqual(['c']);
  });

  it('keeps a guarded lock from everybody until the transaction ends, and lets its holder extend it and others queue [G652]', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    const work = await connected();
    try {
      await work.query('BEGIN');
      await work.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = $1 FOR KEY SHARE', [key]);
      expect((await client.query(extend.text, [[key], ['a'], [20_000], [false], [0]])).rows).toMatchObject([
        { is_done: 1 },
      ]);
      expect(await waits(key, 'b')).toMatchObject({ is_taken: 0, is_guarded: 0, holder: 'a' });
      expect(await queueOf(key)).toEqual(['b']);
      const attempts: Omit<Asked, 'key'>[] = [
        { give: 'a' },
        { give: '*' },
        { give: 'a', owner: 'a2' },
        { owner: 'a' }, // a lost reply
      ];
      for (const attempt of attempts) {
        expect(await once({ key, ...attempt })).toMatchObject({ is_guarded: 1, is_taken: 0, granted: null });
      }
      await expire(key);
      for (const owner of ['b', 'c'])
        expect(await waits(key, owner)).toMatchObject({ is_guarded: 1, is_taken: 0, granted: null });
      expect(await rowOf(key)).toMatchObject({ holder: 'a', isHeld: false });
      await work.query('COMMIT');
      expect(await once({ key, owner: 'd' })).toMatchObject({ is_guarded: 0, is_taken: 0, granted: 'b' });
    } finally {
      await work.end();
    }
  });
});

describe('The statements that take and give one lock alone', () => {
  it('leave a lock alone that a transaction guards, or that another statement is just taking, and do not wait [G665]', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    const other = await connected();
    try {
      await other.query('BEGIN');
      await other.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = $1 FOR KEY SHARE', [key]);
      expect(await givesAlone(key, 'a')).toBe(false);
      await expire(key);
      expect(await takesAlone(key, 'b')).toBe(false);
      await other.query('COMMIT');
      await other.query('BEGIN');
      await other.query(take.text, [key, 'c', 20_000]);
      expect(await takesAlone(key, 'b')).toBe(false);
      await other.query('COMMIT');
      expect(await rowOf(key)).toMatchObject({ holder: 'c', isHeld: true });
    } finally {
      await other.end();
    }
  });
});
