import { afterAll, describe, expect, it } from 'vitest';
import pg from 'pg';
import { freshKey } from '../support/claims.js';
import { expire, postgresOfFile, rowOf as lookAt, sessionOn } from './stage.js';
import { ddl, statements, turnValues, type Asked } from './statements.js';

const { extend, give, inspect, take, turn } = statements;

type Cell = number | string | null;
type Answer = Record<string, Cell>;

const server = await postgresOfFile();
const client = new pg.Client(server.url);
await client.connect();
afterAll(() => client.end());
await client.query(ddl('"resource_lock"'));

/**
 * Runs the statement once for several locks.
 * @returns its rows in their order
 */
async function turns(...asked: Asked[]): Promise<Answer[]> {
  const { rows } = await client.query<Answer>(turn.text, turnValues(asked));
  const number = (cell: Cell) => (/^\d+(\.\d+)?$/.test(String(cell)) ? Number(cell) : cell);
  const answers = rows.map((row) =>
    Object.fromEntries(Object.entries(row).map(([name, cell]) => [name, number(cell)])),
  );
  // There is no row for an unknown lock.
  return asked.map(({ key }) => answers.find((row) => row.key === key) ?? { key, is_known: 0 });
}

async function once(asked: Asked): Promise<Answer> {
  return (await turns(asked))[0]!;
}

/**
 * Takes a single lock.
 * @returns whether the simple statement could do it
 */
async function takesAlone(key: string, owner: string): Promise<boolean> {
  return (await client.query(take.text, [key, owner, 20_000])).rows.length > 0;
}

/**
 * Releases a single lock.
 * @returns whether the simple statement could do it
 */
async function givesAlone(key: string, owner: string): Promise<boolean> {
  return (await client.query(give.text, [key, owner])).rows.length > 0;
}

/**
 * Extends a lock.
 * @returns the answer of the statement
 */
async function extended(key: string, ttlMs: number, keeps = false) {
  return (await client.query(extend.text, [[key], ['a'], [ttlMs], [keeps], [0]])).rows;
}

/** Asks for a lock, and waits for it in the queue. */
function waits(key: string, ticket: string, number?: number, turns = 1): Promise<Answer> {
  return once({ key, owner: ticket, ticket, number, turns, queues: true });
}

/** A lock that `a` holds, and these wait for. */
async function held(...waiting: [ticket: string, number?: number][]): Promise<string> {
  const key = freshKey();
  await once({ key, owner: 'a' });
  for (const [ticket, number] of waiting) await waits(key, ticket, number);
  return key;
}

const rowOf = async (key: string) => (await lookAt(server, key))!;
const queueOf = async (key: string) => (await rowOf(key)).waiters.map((entry) => entry.split(' ')[2]!);
const numbersOf = async (key: string) => (await rowOf(key)).waiters.map((entry) => Number(entry.split(' ')[0]));
const serverUs = async () =>
  Number((await server.query('SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000) AS us'))[0]!.us);

/** Makes it look as if the last sign of a process were this old. */
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
    await waits(key, 'b', 300, 7);
    await waits(key, 'c', 200);
    await waits(key, 'd', 400);
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

  it('passes over processes that are silent while another asks, and counts nobody as silent by the time alone [G651]', async () => {
    const key = await held(['dead', 1_000], ['gone', 1_001], ['alive', 1_002], ['slow', 1_003]);
    for (const ticket of ['dead', 'gone']) await silence(key, ticket, 2_100);
    await silence(key, 'slow', 1_500);
    const { rows } = await client.query(inspect.text, [[key]]);
    expect(rows[0].waiting).toBe('alive 1\nslow 1');
    expect(await once({ key, give: 'a' })).toMatchObject({ granted: 'alive', bound: 1_003 });
    expect(await queueOf(key)).toEqual(['slow']);
    expect(await waits(key, 'gone', 1_001)).toMatchObject({ had_place: 0 });
    expect(await queueOf(key)).toEqual(['gone', 'slow']);

    const paused = await held(['b'], ['c']);
    for (const ticket of ['b', 'c']) await silence(paused, ticket, 5_000);
    expect(await once({ key: paused, give: 'a' })).toMatchObject({ granted: 'b' });
    expect(await queueOf(paused)).toEqual(['c']);
  });

  it('keeps a guarded lock from everybody until the transaction ends, and lets its holder extend it and others queue [G652]', async () => {
    const key = await held();
    const work = await sessionOn(server);
    await work.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = $1 FOR KEY SHARE', [key]);
    expect(await extended(key, 20_000)).toMatchObject([{ is_done: 1 }]);
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
    await expire(server, key);
    for (const owner of ['b', 'c'])
      expect(await waits(key, owner)).toMatchObject({ is_guarded: 1, is_taken: 0, granted: null });
    expect(await rowOf(key)).toMatchObject({ holder: 'a', isHeld: false });
    await work.query('COMMIT');
    expect(await once({ key, owner: 'd' })).toMatchObject({ is_guarded: 0, is_taken: 0, granted: 'b' });
  });

  it.each<[what: string, ask: Omit<Asked, 'key'>, answer: object, left: string[]]>([
    ['does not queue', { owner: 'c' }, { is_taken: 0, gives: 0, granted: 'b' }, []],
    ['comes later', { owner: 'c', ticket: 'c', number: 3_000, queues: true }, { is_taken: 0, granted: 'b' }, ['c']],
    [
      'came before',
      { owner: 'c', ticket: 'c', number: 1, queues: true },
      { is_taken: 1, granted: null, bound: 1_000 },
      ['b'],
    ],
    ['is the first', { owner: 'b', ticket: 'b', number: 1_000, queues: true }, { is_taken: 1, had_place: 1 }, []],
  ])(
    'grants a free lock to the first in its queue, also if it is asked for by one who %s',
    async (_, ask, answer, left) => {
      const key = await held(['b', 1_000]);
      await expire(server, key);
      expect(await once({ key, ...ask })).toMatchObject(answer);
      expect(await queueOf(key)).toEqual(left);
    },
  );

  it('serves places in the order of their numbers, keeps and moves them when they are asked for again, and lets none be in the future', async () => {
    const key = await held(['late', (await serverUs()) + 3_600_000_000], ['unknown'], ['early', 5], ['negative', -7]);
    expect(await queueOf(key)).toEqual(['negative', 'early', 'late', 'unknown']);
    const numbers = await numbersOf(key);
    expect(numbers.slice(0, 2)).toEqual([1, 5]);
    expect(numbers[3]).toBeLessThanOrEqual((await serverUs()) + 1);
    expect(await waits(key, 'unknown')).toMatchObject({ had_place: 1 });
    expect(await numbersOf(key)).toEqual(numbers);
    await waits(key, 'unknown', 3);
    expect(await queueOf(key)).toEqual(['negative', 'unknown', 'early', 'late']);
  });

  it('mints only one token where the tokens have reached the clock, so that they do not run ahead of it', async () => {
    const key = await held();
    await once({ key, give: 'a' });
    const ahead = (await serverUs()) + 60_000_000;
    await client.query('UPDATE resource_lock SET fence = $2 WHERE resource_lock_key = $1', [key, ahead]);
    expect(await once({ key, owner: 'b', turns: 24 })).toMatchObject({ first_token: ahead + 1, last_token: ahead + 1 });
    await waits(key, 'c', undefined, 24);
    expect(await once({ key, give: 'b' })).toMatchObject({ first_token: ahead + 2, last_token: ahead + 2 });
  });

  it('passes over all processes that have long been silent, so that an attempt that does not wait finds a free lock', async () => {
    const key = await held(['dead'], ['gone']);
    for (const ticket of ['dead', 'gone']) await silence(key, ticket, 11_000);
    await expire(server, key);
    expect(await once({ key, owner: 'b' })).toMatchObject({ is_taken: 1, granted: null });
    expect(await queueOf(key)).toEqual([]);
  });
});

describe('The statements that take and give one lock alone', () => {
  it('leave a lock alone that a transaction guards, or that another statement is just taking, and do not wait [G665]', async () => {
    const key = await held();
    const other = await sessionOn(server);
    await other.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = $1 FOR KEY SHARE', [key]);
    expect(await givesAlone(key, 'a')).toBe(false);
    await expire(server, key);
    expect(await takesAlone(key, 'b')).toBe(false);
    await other.query('COMMIT');
    await other.query('BEGIN');
    await other.query(take.text, [key, 'c', 20_000]);
    expect(await takesAlone(key, 'b')).toBe(false);
    await other.query('COMMIT');
    expect(await rowOf(key)).toMatchObject({ holder: 'c', isHeld: true });
  });

  it('forget how many calls waited behind a holder whose lease has ended, as the statement for many does', async () => {
    for (const takes of [takesAlone, (key: string, owner: string) => once({ key, owner })]) {
      const key = await held();
      await client.query(extend.text, [[key], ['a'], [20_000], [false], [3]]);
      expect((await client.query(inspect.text, [[key]])).rows).toMatchObject([{ holder: 'a', calls_behind: 3 }]);
      await expire(server, key);
      await takes(key, 'b');
      expect((await client.query(inspect.text, [[key]])).rows).toMatchObject([{ holder: 'b', calls_behind: 0 }]);
    }
  });

  it('leave a lock to those who wait for it', async () => {
    const key = await held(['b']);
    expect(await givesAlone(key, 'a')).toBe(false);
    await expire(server, key);
    expect(await takesAlone(key, 'c')).toBe(false);
    expect(await rowOf(key)).toMatchObject({ holder: 'a', isHeld: false });
  });
});
