import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ddl, postgresStatements } from '../../lib/stores/sql/postgres/statements.js';
import { freshKey } from '../support/claims.js';
import { PostgresServer } from '../support/postgres-server.js';
import { until } from '../support/until.js';

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

async function serverUs(): Promise<number> {
  const { rows } = await client.query('SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::float8 AS us');
  return Math.floor(rows[0].us as number);
}

describe('The statement that takes locks, gives them back and hands them over', () => {
  it('grants a lock without a row, and one that was given back, with tokens of the clock', async () => {
    const key = freshKey();
    const before = await serverUs();
    const first = await once({ key, owner: 'a', turns: 5 });
    expect(first).toMatchObject({ is_taken: 1, is_guarded: 0, gives: 0, granted: null });
    expect(first.first_token).toBeGreaterThanOrEqual(before);
    expect(first.last_token).toBe(Number(first.first_token) + 4);
    expect(await once({ key, give: 'a' })).toMatchObject({ gives: 1, granted: null });
    expect(await rowOf(key)).toMatchObject({ isHeld: false, waiters: [] });
    const second = await once({ key, owner: 'b' });
    expect(second.is_taken).toBe(1);
    expect(second.first_token).toBeGreaterThan(Number(first.last_token));
  });

  it('refuses a lock that is held, and says by whom and for how long', async () => {
    const key = freshKey();
    const { last_token } = await once({ key, owner: 'a', ttlMs: 60_000 });
    const refused = await once({ key, owner: 'b' });
    expect(refused).toMatchObject({ is_taken: 0, gives: 0, holder: 'a', is_kept: 0, fence: last_token, granted: null });
    expect(refused.remaining).toBeGreaterThan(30_000);
    expect(refused.remaining).toBeLessThanOrEqual(60_000);
    expect(await queueOf(key)).toEqual([]);
  });

  it('takes an attempt whose reply was lost for the same acquisition, with a later token and its ttl anew', async () => {
    const key = freshKey();
    const first = await once({ key, owner: 'a', ttlMs: 20_000 });
    await waits(key, 'b');
    const again = await once({ key, owner: 'a', ttlMs: 60_000 });
    expect(again.is_taken).toBe(1);
    expect(again.first_token).toBeGreaterThan(Number(first.last_token));
    expect((await once({ key, owner: 'c' })).remaining).toBeGreaterThan(30_000);
    expect(await queueOf(key)).toEqual(['b']);
  });

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

  it('confirms a lock that was handed over to whoever asks with its ticket', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    await waits(key, 'b');
    const given = await once({ key, give: 'a' });
    const confirmed = await waits(key, 'b');
    expect(confirmed).toMatchObject({ is_taken: 1, had_place: 0 });
    expect(confirmed.first_token).toBeGreaterThan(Number(given.last_token));
    expect(await queueOf(key)).toEqual([]);
  });

  it('grants a free lock to the first in its queue, whoever else asks for it', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    await waits(key, 'b', 1_000);
    await expire(key);
    expect(await once({ key, owner: 'c' })).toMatchObject({ is_taken: 0, gives: 0, granted: 'b' });
    expect(await rowOf(key)).toMatchObject({ holder: 'b', isHeld: true, waiters: [] });
    await waits(key, 'd', 2_000);
    await expire(key);
    expect(await waits(key, 'c', 3_000)).toMatchObject({ is_taken: 0, granted: 'd' });
    expect(await queueOf(key)).toEqual(['c']);
  });

  it('grants a free lock to whoever asks and came before all that wait', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    await waits(key, 'b', 2_000);
    await expire(key);
    expect(await waits(key, 'c', 1_000)).toMatchObject({ is_taken: 1, granted: null, bound: 2_000 });
    expect(await queueOf(key)).toEqual(['b']);
  });

  it('grants a free lock to the first in the queue when that asks, and takes it out of the queue', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    await waits(key, 'b', 1_000);
    await waits(key, 'c', 2_000);
    await expire(key);
    expect(await waits(key, 'b', 1_000)).toMatchObject({ is_taken: 1, had_place: 1, bound: 2_000 });
    expect(await queueOf(key)).toEqual(['c']);
  });

  it('gives a lock back and asks for it in one step: behind those who came earlier, else at once', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    await waits(key, 'b', 1_000);
    const turned = await once({ key, give: 'a', owner: 'a2', ticket: 'a2', number: 2_000, queues: true });
    expect(turned).toMatchObject({ gives: 1, is_taken: 0, granted: 'b', bound: 2_000 });
    expect(await queueOf(key)).toEqual(['a2']);
    const back = await once({ key, give: 'b', owner: 'b2', ticket: 'b2', number: 1_500, queues: true });
    expect(back).toMatchObject({ gives: 1, is_taken: 1, granted: null, bound: 2_000 });
    expect(back.first_token).toBeGreaterThan(Number(turned.last_token));
    expect(await rowOf(key)).toMatchObject({ holder: 'b2', isHeld: true });
  });

  it('takes back no lock that is not held any more when its turn comes, and still asks for it', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    expect(await once({ key, give: 'x', owner: 'x2' })).toMatchObject({ gives: 0, is_taken: 0, holder: 'a' });
    await expire(key);
    expect(await once({ key, give: 'a', owner: 'a2' })).toMatchObject({ gives: 0, is_taken: 1 });
  });

  it('serves places in the order of their numbers, keeps them when they are asked for again, and lets none be in the future', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    const farAhead = (await serverUs()) + 3_600_000_000;
    await waits(key, 'late', farAhead);
    await waits(key, 'unknown');
    await waits(key, 'early', 5);
    await waits(key, 'negative', -7);
    expect(await queueOf(key)).toEqual(['negative', 'early', 'late', 'unknown']);
    const numbers = (await rowOf(key)).waiters.map((entry) => Number(entry.split(' ')[0]));
    expect(numbers.slice(0, 2)).toEqual([1, 5]);
    expect(numbers[3]).toBeLessThanOrEqual((await serverUs()) + 1);
    expect(await waits(key, 'unknown')).toMatchObject({ had_place: 1 });
    expect((await rowOf(key)).waiters.map((entry) => Number(entry.split(' ')[0]))).toEqual(numbers);
  });

  it('moves a place to the number that its process learns later', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    await waits(key, 'b', 2_000);
    await waits(key, 'c');
    expect(await queueOf(key)).toEqual(['b', 'c']);
    await waits(key, 'c', 1_000);
    expect(await queueOf(key)).toEqual(['c', 'b']);
  });

  it('gives up a place, and the lock if that was handed over to it meanwhile', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    for (const ticket of ['b', 'c', 'd']) await waits(key, ticket);
    expect(await once({ key, give: 'c', ticket: 'c' })).toMatchObject({ gives: 0, granted: null, had_place: 1 });
    expect(await queueOf(key)).toEqual(['b', 'd']);
    await once({ key, give: 'a' });
    expect(await once({ key, give: 'b', ticket: 'b' })).toMatchObject({ gives: 1, granted: 'd' });
    expect(await rowOf(key)).toMatchObject({ holder: 'd', waiters: [] });
  });

  it('leaves a lock that is kept to nobody, not even to its owner, until it ends or is taken by force', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    await client.query(extend.text, [[key], ['a'], [20_000], [true], [0]]);
    await waits(key, 'b');
    for (const owner of ['a', 'b', 'c']) {
      expect(await once({ key, owner })).toMatchObject({ is_taken: 0, is_kept: 1, holder: 'a', granted: null });
    }
    const { rows } = await client.query(extend.text, [[key], ['a'], [60_000], [false], [0]]);
    expect(rows).toMatchObject([{ is_done: 0, is_held: 1 }]);
    expect(await once({ key, give: '*' })).toMatchObject({ gives: 1, holder: 'a', is_kept: 1, granted: 'b' });
    expect(await waits(key, 'b')).toMatchObject({ is_taken: 1 });
  });

  it('forgets how many calls waited behind a holder whose lease has ended, whoever takes the lock and however', async () => {
    const ways = [takesAlone, (key: string, owner: string) => once({ key, owner })];
    for (const takes of ways) {
      const key = freshKey();
      await once({ key, owner: 'a' });
      await client.query(extend.text, [[key], ['a'], [20_000], [false], [3]]);
      expect((await client.query(inspect.text, [[key]])).rows).toMatchObject([{ holder: 'a', calls_behind: 3 }]);
      await expire(key);
      await takes(key, 'b');
      expect((await client.query(inspect.text, [[key]])).rows).toMatchObject([{ holder: 'b', calls_behind: 0 }]);
    }
  });

  it('takes by force from one owner, or from whoever holds the lock, and from nobody where it is free', async () => {
    const key = freshKey();
    expect(await once({ key, give: '*' })).toEqual({ key, is_known: 0 });
    await once({ key, owner: 'a' });
    expect(await once({ key, give: 'b' })).toMatchObject({ gives: 0 });
    expect(await once({ key, give: '*' })).toMatchObject({ gives: 1, holder: 'a' });
    expect(await once({ key, give: '*' })).toMatchObject({ gives: 0 });
    expect(await once({ key, give: 'a' })).toMatchObject({ gives: 0 });
  });

  it('does many locks at once, each as alone, and answers for each', async () => {
    const [free, held, waited, unknown, given] = [1, 2, 3, 4, 5].map(() => freshKey()) as [
      string,
      string,
      string,
      string,
      string,
    ];
    await once({ key: free, owner: 'x' });
    await once({ key: free, give: 'x' });
    await once({ key: held, owner: 'x' });
    await once({ key: waited, owner: 'x' });
    await waits(waited, 'w');
    await once({ key: given, owner: 'x' });
    const answers = await turns(
      { key: held, owner: 'a', ticket: 'a', queues: true },
      { key: unknown, owner: 'a' },
      { key: given, give: 'x', owner: 'a', turns: 3 },
      { key: waited, give: 'x' },
      { key: free, owner: 'a' },
    );
    expect(answers).toMatchObject([
      { is_taken: 0, holder: 'x' },
      { is_taken: 1 },
      { is_taken: 1, gives: 1 },
      { gives: 1, granted: 'w' },
      { is_taken: 1 },
    ]);
    expect(await queueOf(held)).toEqual(['a']);
  });

  it('mints one token only where the tokens have reached the clock, so that they do not run ahead of it', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    await once({ key, give: 'a' });
    const ahead = (await serverUs()) + 60_000_000;
    await client.query('UPDATE resource_lock SET fence = $2 WHERE resource_lock_key = $1', [key, ahead]);
    const taken = await once({ key, owner: 'b', turns: 24 });
    expect(taken).toMatchObject({ is_taken: 1, first_token: ahead + 1, last_token: ahead + 1 });
    await once({ key, owner: 'c', ticket: 'c', turns: 24, queues: true });
    expect(await once({ key, give: 'b' })).toMatchObject({
      granted: 'c',
      first_token: ahead + 2,
      last_token: ahead + 2,
    });
  });

  it('skips a lock whose row is inserted meanwhile, and knows it when it is asked again', async () => {
    const key = freshKey();
    const other = await connected();
    try {
      await other.query('BEGIN');
      await other.query(
        `INSERT INTO resource_lock (resource_lock_key, resource_lock_value, fence, acquired_at, update_time, expires_at)
         VALUES ($1, 'other', 1, now(), now(), now() + interval '1 minute')`,
        [key],
      );
      const asked = once({ key, owner: 'a' });
      await until(
        async () => (await server.query(`SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'`))[0],
        {
          what: 'the statement waits for the row',
        },
      );
      await other.query('COMMIT');
      expect(await asked).toMatchObject({ key, is_skipped: 1 });
      expect(await once({ key, owner: 'a' })).toMatchObject({ is_taken: 0, holder: 'other' });
    } finally {
      await other.end();
    }
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

  it('passes over all that have been silent for long, so that an attempt which does not wait finds a lock free', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    for (const ticket of ['dead', 'gone']) {
      await waits(key, ticket);
      await silence(key, ticket, 11_000);
    }
    await expire(key);
    expect(await once({ key, owner: 'b' })).toMatchObject({ is_taken: 1, granted: null });
    expect(await queueOf(key)).toEqual([]);
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
  it('take a free lock and give it back, with growing tokens, and do nothing for whoever does not hold it', async () => {
    const key = freshKey();
    expect(await takesAlone(key, 'a')).toBe(false); // it has no row yet
    const { last_token } = await once({ key, owner: 'a' });
    expect(await takesAlone(key, 'b')).toBe(false);
    expect(await givesAlone(key, 'b')).toBe(false);
    expect(await givesAlone(key, 'a')).toBe(true);
    expect(await givesAlone(key, 'a')).toBe(false);
    expect(await takesAlone(key, 'b')).toBe(true);
    const { fence, holder } = await rowOf(key);
    expect(holder).toBe('b');
    expect(fence).toBeGreaterThan(Number(last_token));
  });

  it('leave a lock to those who wait for it', async () => {
    const key = freshKey();
    await once({ key, owner: 'a' });
    await waits(key, 'b');
    expect(await givesAlone(key, 'a')).toBe(false);
    await expire(key);
    expect(await takesAlone(key, 'c')).toBe(false);
    expect(await rowOf(key)).toMatchObject({ holder: 'a', isHeld: false });
  });

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
