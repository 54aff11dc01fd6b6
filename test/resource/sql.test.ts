import {
  assertFenced,
  fencedUpdate,
  fencedUpsert,
  LockKeyError,
  SqlFence,
  StaleTokenError,
  type FencedRow,
} from 'nest-redis-lock';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { randomOf } from '../support/random.js';
import { RedisServer } from '../support/redis-server.js';
import { DATABASES, tableName, type Database } from './database.js';
import { FencedWriter } from './fenced-writer.js';

const MAX = Number.MAX_SAFE_INTEGER;

describe.each(DATABASES)('on %s', (_name, open) => {
  let redis: RedisServer;
  let database: Database;
  let table: string;

  beforeAll(async () => {
    [database, redis] = await Promise.all([open(), RedisServer.start()]);
  }, 60_000);

  beforeEach(async () => {
    table = tableName();
    await database.pool.query(
      `CREATE TABLE ${table} (sku text PRIMARY KEY, boxes int, fence bigint NOT NULL DEFAULT 0)`,
    );
    await database.pool.query(`INSERT INTO ${table} VALUES ('tea', 10)`);
    return async () => {
      await database.pool.query(`DROP TABLE ${table}`);
    };
  });

  afterAll(async () => {
    await Promise.all([redis.stop(), database.stop()]);
  });

  async function run({ text, values }: { text: string; values: unknown[] }): Promise<number> {
    return (await database.pool.query(text, values)).rows.length;
  }

  const update = (row: Partial<FencedRow> & { fence: number }) =>
    run(fencedUpdate({ table, where: { sku: 'tea' }, ...row }));
  const upsert = (row: Partial<FencedRow> & { fence: number }) =>
    run(fencedUpsert({ table, where: { sku: 'tea' }, ...row }));

  async function rowOf(sku = 'tea'): Promise<{ boxes: number; fence: string } | undefined> {
    const { rows } = await database.pool.query<{ boxes: number; fence: string }>(
      `SELECT boxes, fence FROM ${table} WHERE sku = $1`,
      [sku],
    );
    return rows[0];
  }

  describe('fencedUpdate', () => {
    it('writes, remembers the token, and refuses an older one', async () => {
      expect(await update({ set: { boxes: 9 }, fence: 34 })).toBe(1);
      expect(await update({ set: { boxes: 1 }, fence: 33 })).toBe(0);
      expect(await rowOf()).toEqual({ boxes: 9, fence: '34' });
    });

    it('writes to the row that was meant, and to no other', async () => {
      await database.pool.query(`INSERT INTO ${table} VALUES ('coffee', 5)`);
      expect(await update({ set: { boxes: 9 }, fence: 34 })).toBe(1);
      expect(await rowOf('coffee')).toEqual({ boxes: 5, fence: '0' });
    });

    it('writes NULL where it is told to', async () => {
      await update({ set: { boxes: null }, fence: 34 });
      expect(await rowOf()).toEqual({ boxes: null, fence: '34' });
    });

    it('keeps the largest token exact', async () => {
      expect(await update({ fence: MAX })).toBe(1);
      expect(await update({ fence: MAX - 1 })).toBe(0);
      expect((await rowOf())!.fence).toBe(String(MAX));
    });

    it('claims a row for a token without another change', async () => {
      expect(await update({ fence: 34 })).toBe(1);
      expect(await rowOf()).toEqual({ boxes: 10, fence: '34' });
      expect(await update({ set: { boxes: 1 }, fence: 33 })).toBe(0);
    });

    it('changes nothing where there is no such row, and says that this may be why', async () => {
      const statement = fencedUpdate({ table, where: { sku: 'gone' }, set: { boxes: 1 }, fence: 34 });
      const changed = await run(statement);
      expect(changed).toBe(0);
      expect(() => assertFenced(changed, statement)).toThrow('or has no such row');
      expect(await rowOf('gone')).toBeUndefined();
    });

    it('fails in a column of text, where 9 would be more than 10', async () => {
      await database.pool.query(`ALTER TABLE ${table} ALTER fence DROP DEFAULT, ALTER fence TYPE text`);
      await expect(update({ set: { boxes: 1 }, fence: 34 })).rejects.toThrow('text <= bigint');
      await expect(upsert({ set: { boxes: 1 }, fence: 34 })).rejects.toThrow('text <= bigint');
    });

    it('finds what has quotes and capitals in its name', async () => {
      const odd = `${table}_"Odd"`;
      await database.pool.query(`CREATE TABLE "${odd.replaceAll('"', '""')}" ("The Key" text PRIMARY KEY, "n""o" int, "Fence" bigint)`); // prettier-ignore
      const row = { table: odd, where: { 'The Key': 'x' }, set: { 'n"o': 1 }, column: 'Fence' };
      expect(await run(fencedUpsert({ ...row, fence: 34 }))).toBe(1);
      expect(await run(fencedUpsert({ ...row, fence: 33 }))).toBe(0);
      expect(await run(fencedUpdate({ ...row, fence: 33 }))).toBe(0);
      expect(await run(fencedUpdate({ ...row, table: `public.${odd}`, fence: 35 }))).toBe(1);
      await database.pool.query(`DROP TABLE "${odd.replaceAll('"', '""')}"`);
    });
  });

  describe('fencedUpsert', () => {
    it('inserts what is not there, with its token, and refuses an older one', async () => {
      const row = { where: { sku: 'new' } };
      expect(await upsert({ ...row, set: { boxes: 5 }, fence: 34 })).toBe(1);
      expect(await upsert({ ...row, set: { boxes: 1 }, fence: 33 })).toBe(0);
      expect(await rowOf('new')).toEqual({ boxes: 5, fence: '34' });
    });

    it('updates what is there, with the same and with a newer token', async () => {
      expect(await upsert({ set: { boxes: 9 }, fence: 34 })).toBe(1);
      expect(await upsert({ set: { boxes: 8 }, fence: 34 })).toBe(1);
      expect(await upsert({ set: { boxes: 7 }, fence: 35 })).toBe(1);
      expect(await upsert({ set: { boxes: 1 }, fence: 34 })).toBe(0);
      expect(await rowOf()).toEqual({ boxes: 7, fence: '35' });
    });

    it('keeps a late writer out of a row that a plain insert would leave without a fence', async () => {
      // The newer holder has found nothing to write; only its claim keeps the older one from making the row.
      expect(await update({ where: { sku: 'naive' }, fence: 34 })).toBe(0);
      expect(await upsert({ where: { sku: 'naive' }, set: { boxes: 1 }, fence: 33 })).toBe(1);
      expect(await upsert({ where: { sku: 'fenced' }, fence: 34 })).toBe(1);
      expect(await upsert({ where: { sku: 'fenced' }, set: { boxes: 1 }, fence: 33 })).toBe(0);
    });
  });

  describe('a transaction', () => {
    it('a transaction that claimed the row first makes an older writer wait, which is refused after the commit [G28]', async () => {
      const newer = await database.pool.connect();
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

  describe('processes', () => {
    let writers: FencedWriter[] = [];

    beforeAll(async () => {
      const start = () => FencedWriter.start({ redis: redis.url, database: database.url });
      writers = await Promise.all([start(), start(), start()]);
    }, 60_000);

    beforeEach(async () => {
      await Promise.all(writers.map((writer) => writer.use(table)));
    });

    afterAll(async () => {
      await Promise.all(writers.map((writer) => writer.kill()));
    });

    /** Has the table write down each token in the order in which it was accepted. */
    async function logTokens(): Promise<() => Promise<number[]>> {
      await database.pool.query(`CREATE TABLE ${table}_log (id serial, fence bigint)`);
      await database.pool.query(
        `CREATE FUNCTION ${table}_note() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN INSERT INTO ${table}_log (fence) VALUES (NEW.fence); RETURN NEW; END $$`,
      );
      await database.pool.query(
        `CREATE TRIGGER note AFTER INSERT OR UPDATE ON ${table} FOR EACH ROW EXECUTE FUNCTION ${table}_note()`,
      );
      return async () => {
        const { rows } = await database.pool.query<{ fence: string }>(`SELECT fence FROM ${table}_log ORDER BY id`);
        await database.pool.query(`DROP TRIGGER note ON ${table}`);
        await database.pool.query(`DROP FUNCTION ${table}_note`);
        await database.pool.query(`DROP TABLE ${table}_log`);
        return rows.map(({ fence }) => Number(fence));
      };
    }

    it.each<[form: 'update' | 'upsert', sku: string]>([
      ['update', 'tea'],
      ['upsert', 'new'],
    ])('that race by %s are accepted in the order of their tokens', async (form, sku) => {
      const accepted = await logTokens();
      const random = randomOf(form.length + 20);
      const tokens = Array.from({ length: 600 }, (_, index) => 1_790_000_000_000_000 + Math.floor(index / 2));
      const newest = tokens.at(-1)!;
      tokens.sort(() => random() - 0.5);
      const told = await Promise.all(
        writers.map((writer, index) =>
          writer.race(
            form,
            sku,
            tokens.filter((_, at) => at % writers.length === index),
          ),
        ),
      );
      const order = await accepted();
      expect(order).toEqual([...order].sort((a, b) => a - b));
      expect(order.at(-1)).toBe(newest);
      expect(await rowOf(sku)).toEqual({ boxes: newest % 1_000_000, fence: String(newest) });
      // Who was told to have written has written, and nobody else.
      expect(told.flat().sort()).toEqual([...order].sort());
      expect(order.length).toBeGreaterThan(1);
      expect(order.length).toBeLessThan(tokens.length / 2);
    });

    it('overwrite each other when one is paused and nobody looks at the token', async () => {
      const { late, boxes } = await pauseBeforeWrite('writeNaively');
      expect(late).toBe(true);
      expect(boxes).toBe(11); // ten and one: the boxes of the other are gone
    });

    it('two processes do not overwrite each other when one is paused and the row looks at the token [G27]', async () => {
      const { late, boxes } = await pauseBeforeWrite('writeBoxes');
      expect(late).toBe(false);
      expect(boxes).toBe(15);
    });

    /** The first reads, and stops until its lease is over and the second has written; then it writes what it has. */
    async function pauseBeforeWrite(write: 'writeBoxes' | 'writeNaively') {
      const [first, second] = [writers[0]!, writers[1]!];
      const key = `${table}:tea`;
      const token = await first.acquire(key, { ttlMs: 1_000 });
      const read = await first.readBoxes('tea');
      first.pause();
      expect(await second.acquire(key, { ttlMs: 60_000 })).toBeGreaterThan(token);
      expect(await second[write]('tea', (await second.readBoxes('tea')) + 5)).toBe(true);
      await second.release();
      const late = first[write]('tea', read + 1);
      first.resume();
      return { late: await late, boxes: (await rowOf())!.boxes };
    }
  });

  describe('a SqlFence', () => {
    const fence = () => new SqlFence((text, values) => database.pool.query(text, values), { table, keyColumn: 'sku' });

    it('keeps the highest token of each key', async () => {
      const store = fence();
      expect(await store.raise('a', 33)).toBe(true);
      expect(await store.raise('a', 33)).toBe(true);
      expect(await store.raise('a', 34)).toBe(true);
      expect(await store.raise('a', 33)).toBe(false);
      expect(await store.raise('b', 33)).toBe(true);
      expect((await rowOf('a'))!.fence).toBe('34');
    });

    it('has the table of its documentation unless told otherwise', async () => {
      const session = await database.pool.connect();
      // Also where the server has such a table of somebody else.
      await session.query('BEGIN');
      await session.query(
        'CREATE TEMPORARY TABLE fencing_tokens (key text PRIMARY KEY, fence bigint NOT NULL) ON COMMIT DROP',
      );
      const store = new SqlFence((text, values) => session.query(text, values));
      expect(await store.raise('a', 34)).toBe(true);
      expect(await store.raise('a', 33)).toBe(false);
      await session.query('COMMIT');
      session.release();
    });

    it('passes nobody when the table is not there, or the query function tells no rows', async () => {
      const query = (text: string, values: unknown[]) => database.pool.query(text, values);
      await expect(new SqlFence(query, { table: `${table}_no` }).raise('a', 1)).rejects.toThrow('does not exist');
      await expect(new SqlFence(async () => ({}) as never).raise('a', 1)).rejects.toThrow('must resolve to { rows }');
      await expect(new SqlFence(async () => ({ rows: 1 }) as never).raise('a', 1)).rejects.toThrow('{ rows }');
      await expect(fence().raise('', 1)).rejects.toBeInstanceOf(LockKeyError);
    });
  });

  it('throws one error for all, by which they are known', async () => {
    const statement = fencedUpsert({ table, where: { sku: 'tea' }, fence: 33 });
    await update({ fence: 34 });
    const changed = await run(statement);
    expect(() => assertFenced(changed, statement)).toThrow(StaleTokenError);
  });
});
