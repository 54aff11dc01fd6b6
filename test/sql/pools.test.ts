import pg from 'pg';
import { expect, it } from 'vitest';
import { openPostgres } from '../../lib/stores/sql/postgres/postgres-source.js';

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
