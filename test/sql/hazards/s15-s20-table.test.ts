import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openPostgres } from '../../../lib/stores/sql/postgres/postgres-source.js';
import { ddl, postgresStatements } from '../../../lib/stores/sql/postgres/statements.js';
import { freshKey } from '../../support/claims.js';
import { PostgresServer } from '../../support/postgres-server.js';
import { until } from '../../support/until.js';
import { blocked, connectTo, locksOn, PATIENT, rowOf } from './stage.js';

const TTL_MS = 600_000;

let server: PostgresServer;
beforeAll(async () => {
  // Statistics are gathered by nobody, as long as a test does not.
  server = await PostgresServer.start({ autovacuum: 'off' });
});
afterAll(() => server.stop());

describe('S15: the rows of the locks are lost', () => {
  it('this library goes on with greater tokens when a crash has emptied its table, which somebody made UNLOGGED [G759]', async () => {
    const locks = await locksOn(server, { table: 'unlogged' });
    const key = freshKey();
    await locks.withLock(key, () => {});
    await server.query('ALTER TABLE unlogged SET UNLOGGED');
    const lock = await locks.acquire(key, { ttlMs: TTL_MS });
    await server.restart();
    expect(await server.query('SELECT 1 FROM unlogged')).toEqual([]);
    const next = await (await locksOn(server, { table: 'unlogged' })).acquire(key, { waitMs: 0 });
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  });
});

describe('S16: the row of a lock is swept while the lock is taken', () => {
  it('this library leaves a row alone that is just being taken, and one that was taken since the sweep began [G760]', async () => {
    const locks = await locksOn(server);
    const [taken, unused] = [freshKey(), freshKey()];
    for (const key of [taken, unused]) await locks.withLock(key, () => {});
    const { sweep, take } = postgresStatements('"resource_lock"');
    const [taking, sweeping] = [await connectTo(server), await connectTo(server)];
    const keys = async () =>
      (await server.query('SELECT resource_lock_key AS key FROM resource_lock')).map(({ key }) => key as string);

    await taking.query('BEGIN');
    expect((await taking.query(take.text, [taken, 'a process', TTL_MS])).rowCount).toBe(1);
    await sweeping.query(sweep.text, ['', 0]);
    expect(await keys()).toContain(taken);
    expect(await keys()).not.toContain(unused);
    await taking.query('COMMIT');
    await sweeping.query(sweep.text, ['', 0]);
    expect((await rowOf(server, taken))!).toMatchObject({ holder: 'a process', isHeld: true });
  });

  it('this library leaves a row whose tokens are ahead of the clock, as after that was set back: the next one is greater [G946]', async () => {
    const locks = await locksOn(server);
    const key = freshKey();
    await locks.withLock(key, () => {});
    const ahead = Date.now() * 1_000 + 86_400_000_000;
    await server.query(`UPDATE resource_lock SET fence = ${ahead} WHERE resource_lock_key = '${key}'`);
    await (await connectTo(server)).query(postgresStatements('"resource_lock"').sweep.text, ['', 0]);
    expect((await locks.acquire(key)).fencingToken).toBe(ahead + 1);
  });

  it('this library takes a lock whose row is just being deleted with a greater token [G761]', async () => {
    const locks = await locksOn(server);
    const key = freshKey();
    const before = await locks.acquire(key);
    await before.release();
    const sweeping = await connectTo(server);
    await sweeping.query('BEGIN');
    await sweeping.query(postgresStatements('"resource_lock"').sweep.text, ['', 0]);
    const [{ now }] = (await server.query('SELECT clock_timestamp()::text AS now')) as [{ now: string }];
    const acquiring = locks.acquire(key, { waitMs: TTL_MS });
    const asked = `SELECT 1 FROM pg_stat_activity WHERE application_name = 'nest-redis-lock' AND state = 'idle'
      AND query_start > $1::timestamptz`;
    await until(async () => (await server.query(asked, [now])).length > 0, { what: 'it was asked for' });
    await sweeping.query('COMMIT');
    const lock = await acquiring;
    expect(lock.fencingToken).toBeGreaterThan(before.fencingToken);
    expect((await rowOf(server, key))!).toMatchObject({ holder: lock.owner, isHeld: true });
    expect(await lock.release()).toBe(true);
  });
});

describe('S18: the plan of a statement was made while the table was empty', () => {
  const ROWS = 100_000;
  const KEYS = ['key 5', 'key 70000'];

  it('this library finds its rows by their keys, whenever its plans were made [G762]', async () => {
    await server.query(ddl('"large"'));
    const { turn, extend, give, inspect, scan, sweep, take } = postgresStatements('"large"');
    const source = await openPostgres(server.url, PATIENT.commandTimeoutMs);
    const client = await source.connect(() => {});
    const values: Readonly<Record<string, readonly unknown[]>> = {
      [turn.name]: [KEYS, ['a', 'a'], ['b', 'b'], [null, null], [1, 1], [1, 1], [null, null], [false, false], [0, 0]],
      [extend.name]: [KEYS, ['a', 'a'], [1, 1], [false, false], [0, 0]],
      [inspect.name]: [KEYS],
      [take.name]: [KEYS[0], 'a', 1],
      [give.name]: [KEYS[0], 'a'],
      [scan.name]: ['key', 'key 5'],
      [sweep.name]: ['key 5', TTL_MS],
    };
    const statements = [turn, extend, inspect, take, give, scan, sweep];
    for (const statement of statements) await client.query(statement, values[statement.name]!);
    await server.query(
      `INSERT INTO large SELECT 'key ' || n, 'nobody', n, false, '{}', 0, 'epoch', now(), 'epoch' FROM generate_series(1, ${ROWS}) AS n ON CONFLICT DO NOTHING`,
    );
    const names = await client.query(
      { name: 'prepared', text: 'SELECT name, statement FROM pg_prepared_statements' },
      [],
    );
    for (const { name, text } of statements) {
      const given = values[name]!.map((value) =>
        Array.isArray(value) ? `'{${value.map((each) => JSON.stringify(each)).join(', ')}}'` : `'${String(value)}'`,
      );
      const prepared = String(names.find(({ statement }) => statement === text)!.name);
      const execute = `EXECUTE "${prepared}" (${given.join(', ')})`;
      const plan = await planOf((text) => client.query({ name: `explain_${name}`, text }, []), execute);
      expect(plan, name).toContain('using large_pkey');
      expect(plan, name).not.toMatch(/(Seq|Heap) Scan on large/); // it is read row by row, in the order of its keys
    }
    client.close();
  });

  async function planOf(
    query: (text: string) => Promise<readonly Readonly<Record<string, unknown>>[]>,
    execute: string,
  ): Promise<string> {
    return (await query(`EXPLAIN ${execute}`)).map((row) => row['QUERY PLAN']).join('\n');
  }
});

describe('S20: several processes create the table at once', () => {
  it('this library starts all the same, and has one table for all [G763]', async () => {
    const a = await connectTo(server);
    await a.query('BEGIN');
    await a.query(ddl('"created_at_once"'));
    const opening = Promise.all([1, 2, 3].map(() => locksOn(server, { table: 'created_at_once' })));
    await blocked(server);
    await a.query('COMMIT');
    const [one, ...others] = await opening;
    await one!.acquire('key');
    for (const other of others) expect(await other.tryAcquire('key')).toBeNull();
  });
});
