import { assertFenced, fencedUpdate, fencedUpsert, SqlFence, StaleTokenError, type FencedRow } from 'nest-redis-lock';
import pg from 'pg';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { postgresOfFile } from '../sql/stage.js';
import { openLocks } from '../support/open-locks.js';
import { serverOfFile } from '../support/stage.js';

const redis = await serverOfFile();
const database = await postgresOfFile();
const pool = new pg.Pool({ connectionString: database.url, max: 4 });
afterAll(() => pool.end());
const table = 'stock';

beforeEach(async () => {
  await database.query(
    `DROP TABLE IF EXISTS stock; CREATE TABLE stock (sku text PRIMARY KEY, boxes int, fence bigint NOT NULL DEFAULT 0);
     INSERT INTO stock VALUES ('tea', 10)`,
  );
});

async function run({ text, values }: { text: string; values: unknown[] }): Promise<number> {
  return (await pool.query(text, values)).rows.length;
}

const update = (row: Partial<FencedRow> & { fence: number }) =>
  run(fencedUpdate({ table, where: { sku: 'tea' }, ...row }));
const upsert = (row: Partial<FencedRow> & { fence: number }) =>
  run(fencedUpsert({ table, where: { sku: 'tea' }, ...row }));

async function rowOf(sku = 'tea'): Promise<{ boxes: number; fence: string } | undefined> {
  const { rows } = await pool.query<{ boxes: number; fence: string }>(
    `SELECT boxes, fence FROM ${table} WHERE sku = $1`,
    [sku],
  );
  return rows[0];
}

describe('a fenced statement', () => {
  it('creates a row with an upsert, and writes to it unless its token is older', async () => {
    const write = (boxes: number, fence: number) => upsert({ where: { sku: 'new' }, set: { boxes }, fence });
    expect([await write(5, 34), await write(6, 33), await write(7, 34)]).toEqual([1, 0, 1]);
    expect(await rowOf('new')).toEqual({ boxes: 7, fence: '34' });
  });

  it('fails in a column of text, where 9 would be more than 10', async () => {
    await pool.query(`ALTER TABLE ${table} ALTER fence DROP DEFAULT, ALTER fence TYPE text`);
    await expect(update({ set: { boxes: 1 }, fence: 34 })).rejects.toThrow('text <= bigint');
    await expect(upsert({ set: { boxes: 1 }, fence: 34 })).rejects.toThrow('text <= bigint');
  });

  it('a row refuses a write of the process that detached the lock, once its adopter has written [G825]', async () => {
    const [sender, receiver] = await Promise.all([openLocks({ redis: redis.url }), openLocks({ redis: redis.url })]);
    const write = async (fence: number, boxes: number) => {
      const statement = fencedUpdate({ table, set: { boxes }, where: { sku: 'tea' }, fence });
      assertFenced(await run(statement), statement);
    };
    const lock = await sender.acquire(`${table}:adopted`);
    await write(lock.fencingToken, 1);
    const parcel = await lock.detach({ ttlMs: 60_000 });
    await write(parcel.fencingToken, 2); // the lock keeps that token until it is adopted
    await receiver.withAdopted(parcel, ({ fencingToken }) => write(fencingToken, 3));
    await expect(write(lock.fencingToken, 4)).rejects.toBeInstanceOf(StaleTokenError);
    expect((await rowOf())!.boxes).toBe(3);
  });
});

describe('a transaction', () => {
  it('a transaction that claimed the row first makes an older writer wait, and the older writer is refused after the commit [G28]', async () => {
    const newer = await pool.connect();
    await newer.query('BEGIN');
    const claim = fencedUpdate({ table, where: { sku: 'tea' }, fence: 34 });
    expect((await newer.query(claim.text, claim.values)).rows).toHaveLength(1);
    const older = update({ set: { boxes: 1 }, fence: 33 });
    await newer.query(`UPDATE ${table} SET boxes = 9 WHERE sku = 'tea'`);
    await newer.query('COMMIT');
    newer.release();
    expect(await older).toBe(0);
    expect(await rowOf()).toEqual({ boxes: 9, fence: '34' });
  });
});

describe('a SqlFence', () => {
  const fence = () => new SqlFence((text, values) => pool.query(text, values), { table, keyColumn: 'sku' });

  it('keeps the highest token of each key', async () => {
    const store = fence();
    expect(await store.raise('a', 33)).toBe(true);
    expect(await store.raise('a', 33)).toBe(true);
    expect(await store.raise('a', 34)).toBe(true);
    expect(await store.raise('a', 33)).toBe(false);
    expect(await store.raise('b', 33)).toBe(true);
    expect((await rowOf('a'))!.fence).toBe('34');
  });

  it('refuses all writes when the table is missing, or the query function returns no rows', async () => {
    const query = (text: string, values: unknown[]) => pool.query(text, values);
    await expect(new SqlFence(query, { table: `${table}_no` }).raise('a', 1)).rejects.toThrow('does not exist');
    await expect(new SqlFence(async () => ({ rows: 1 }) as never).raise('a', 1)).rejects.toThrow('resolve to { rows }');
    await expect(fence().raise('', 1)).rejects.toMatchObject({ code: 'LOCK_KEY' });
  });
});
