import { describe, expect, it, onTestFinished } from 'vitest';
import type { PostgresClient } from '../../lib/stores/sql/postgres/postgres-source.js';
import { PostgresStatement } from '../../lib/stores/sql/postgres/statements.js';
import { SqlConnection } from '../../lib/stores/sql/sql-connection.js';
import { StatementRunner } from '../../lib/stores/sql/statement-runner.js';
import { now } from '../support/claims.js';

describe('An operation whose row another session holds', () => {
  it('is followed by what was asked for later for the same key, and holds up nothing else [G1056]', async () => {
    const done: unknown[] = [];
    let skips = 3;
    const isSkipped = (value: unknown) => value === 'release' && skips-- > 0;
    const client: PostgresClient = {
      query: async (_, columns) => {
        const [keys, asked] = columns as [string[], string[]];
        return keys.map((key, at) => {
          const is_skipped = Number(isSkipped(asked[at]));
          if (is_skipped === 0) done.push(asked[at]);
          return { key, is_skipped };
        });
      },
      listen: async () => {},
      close: () => {},
    };
    const source = { name: 'fake', connect: () => Promise.resolve(client) };
    const connection = new SqlConnection(source, 1_000, () => Promise.resolve(undefined));
    onTestFinished(() => connection.close());
    await connection.ready(60_000);
    const runner = new StatementRunner(connection, 60_000, now);
    const change = new PostgresStatement('change', 'UPDATE', 1, 100);
    const look = new PostgresStatement('look', 'SELECT', 4, 100);
    const released = runner.ask(change, ['key', 'release'], 'key');
    const declined = runner.ask(change, ['key', 'late message'], 'key');
    await runner.ask(change, ['other', 'other'], 'other');
    await runner.ask(look, ['key', 'look'], 'key');
    expect(done).toEqual(['other', 'look']);
    await Promise.all([released, declined]);
    expect(done).toEqual(['other', 'look', 'release', 'late message']);
  });
});
