import { describe, expect, it, onTestFinished } from 'vitest';
import type { PostgresClient } from '../../lib/stores/sql/postgres/postgres-source.js';
import { PostgresStatement } from '../../lib/stores/sql/postgres/statements.js';
import type { Row, SqlClient, SqlSource } from '../../lib/stores/sql/sql-client.js';
import { SqlConnection, type Refusal } from '../../lib/stores/sql/sql-connection.js';
import { StatementRunner } from '../../lib/stores/sql/statement-runner.js';
import { now } from '../support/claims.js';
import { until } from '../support/until.js';

const LIMIT_MS = 1_000;
const forEver = () => new Promise<never>(() => {});

/** A database in this process, whose answers a test gives. */
class FakeSource implements SqlSource<PostgresClient> {
  readonly name = 'fake';
  readonly clients: (PostgresClient & { isClosed: boolean; end: () => void })[] = [];
  answer: () => Promise<Row[]> = () => Promise.resolve([]);
  listen: () => Promise<void> = () => Promise.resolve();

  connect(onEnd: () => void): Promise<PostgresClient> {
    const client = {
      isClosed: false,
      end: onEnd,
      query: () => this.answer(),
      listen: () => this.listen(),
      close: () => void (client.isClosed = true),
    };
    this.clients.push(client);
    return Promise.resolve(client);
  }
}

function connectionTo(source: FakeSource, admit: (client: SqlClient) => Promise<Refusal | undefined>): SqlConnection {
  const connection = new SqlConnection(source, LIMIT_MS, admit);
  onTestFinished(() => connection.close());
  return connection;
}

const admitsAll = () => Promise.resolve(undefined);

describe('The connection of locks to a database', () => {
  it('is given up when the look at the database hangs, and made anew', async () => {
    const source = new FakeSource();
    let hangs = true;
    const connection = connectionTo(source, () => (hangs ? forEver() : admitsAll()));
    const problem = await connection.ready(60_000);
    expect(problem).toMatchObject({ problem: expect.stringContaining('no answer within'), advice: expect.any(String) });
    expect(source.clients[0]!.isClosed).toBe(true);
    hangs = false;
    await until(() => connection.isReady, { what: 'it is ready' });
  });
});

describe('An operation whose row another session holds', () => {
  it('is followed by what was asked for later for the same key, and holds up nothing else [G1056]', async () => {
    const source = new FakeSource();
    const connection = connectionTo(source, admitsAll);
    await connection.ready(60_000);
    const runner = new StatementRunner(connection, 60_000, now);
    const done: unknown[] = [];
    let skips = 3;
    const isSkipped = (value: unknown) => value === 'release' && skips-- > 0;
    source.clients[0]!.query = (_, columns) => {
      const [keys, asked] = columns as [string[], string[]];
      return Promise.resolve(
        keys.map((key, at) => {
          const is_skipped = Number(isSkipped(asked[at]));
          if (is_skipped === 0) done.push(asked[at]);
          return { key, is_skipped };
        }),
      );
    };
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
