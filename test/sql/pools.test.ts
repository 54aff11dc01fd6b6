import pg from 'pg';
import { expect, it } from 'vitest';
import { postgresStatements } from '../../lib/stores/sql/postgres/statements.js';
import { openPostgres } from '../../lib/stores/sql/postgres/postgres-source.js';

it('a prepared statement has the name of its text, as a pooler may lead to where that of another table was prepared', async () => {
  const names: (string | undefined)[] = [];
  class Client extends pg.Client {
    override async connect(): Promise<never> {
      return undefined as never;
    }

    override query = (async ({ name }: { name?: string }) => {
      names.push(name);
      return { rows: [] };
    }) as never;
  }
  const pool = new pg.Pool({ host: 'database', ...({ Client } as object) });
  const source = await openPostgres(pool, 1_000);
  const clients = await Promise.all([1, 2].map(() => source.connect(() => {})));
  names.length = 0;
  for (const client of clients)
    for (const table of ['"one"', '"other"']) await client.query(postgresStatements(table).take, ['key', 'owner', 1]);
  expect(new Set(names).size).toBe(2);
  expect(names.slice(0, 2)).toEqual(names.slice(2));
  for (const name of names) expect(name).toMatch(/^nest_redis_lock_take_[0-9a-f]{16}$/);
  await pool.end();
});

it('connections are made with the password of a pool, which hides it from who copies its options', async () => {
  const given: Record<string, unknown>[] = [];
  class Client extends pg.Client {
    constructor(config: pg.ClientConfig) {
      super(config);
      given.push({ ...config });
    }
  }
  const options: object = { host: 'database', user: 'app', password: 'secret', ssl: { key: 'a key' }, Client };
  const pool = new pg.Pool(options);
  expect(Object.keys(pool.options)).not.toContain('password');
  await openPostgres(pool, 1_000);
  expect(given[0]).toMatchObject({ host: 'database', user: 'app', password: 'secret' });
  expect((given[0]!.ssl as { key: string }).key).toBe('a key');
  await pool.end();
});
