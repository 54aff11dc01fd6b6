import { describe, expect, it, onTestFinished } from 'vitest';
import { PostgresInbox } from '../../lib/stores/sql/postgres/postgres-inbox.js';
import type { PostgresClient } from '../../lib/stores/sql/postgres/postgres-source.js';
import { PostgresStatement } from '../../lib/stores/sql/postgres/statements.js';
import type { Row, SqlClient, SqlSource } from '../../lib/stores/sql/sql-client.js';
import { SqlConnection, type Refusal } from '../../lib/stores/sql/sql-connection.js';
import { SqlFault } from '../../lib/stores/sql/sql-fault.js';
import { StatementRunner } from '../../lib/stores/sql/statement-runner.js';
import type { Statement } from '../../lib/stores/sql/statement.js';
import { now } from '../support/claims.js';
import { until } from '../support/until.js';

const LIMIT_MS = 1_000;
const STATEMENT: Statement = new PostgresStatement('ask', 'SELECT', 3);
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

  it('is not used when it has ended while the database was looked at', async () => {
    const source = new FakeSource();
    const connection = connectionTo(source, () => {
      if (source.clients.length === 1) source.clients[0]!.end();
      return admitsAll();
    });
    await until(async () => (await connection.ready(60_000)) === undefined, { what: 'it is ready' });
    expect(source.clients).toHaveLength(2);
    expect(source.clients[0]!.isClosed).toBe(true);
  });

  it('is closed although it is made only after that', async () => {
    const source = new FakeSource();
    let admitted!: (refusal?: Refusal) => void;
    const connection = connectionTo(source, () => new Promise((resolve) => (admitted = resolve)));
    const ready = connection.ready(60_000);
    await until(() => source.clients.length === 1, { what: 'it is looked at' });
    connection.close();
    expect(await ready).toMatchObject({ problem: expect.any(String) });
    admitted();
    await until(() => source.clients[0]!.isClosed, { what: 'it is closed' });
    expect(connection.isReady).toBe(false);
  });

  it('that breaks as soon as it is made is made anew after pauses that grow', async () => {
    const source = new FakeSource();
    const connection = connectionTo(source, admitsAll);
    connection.onReady = () => setImmediate(() => source.clients.at(-1)!.end());
    await connection.ready(60_000);
    const startedAt = performance.now();
    await until(() => performance.now() - startedAt > 1_000, { what: 'a second is over' });
    expect(source.clients.length).toBeLessThan(15);
  });

  it('that is dropped has what waits behind the overdue statement refused, unsent', async () => {
    const source = new FakeSource();
    const connection = connectionTo(source, admitsAll);
    await connection.ready(60_000);
    const runner = new StatementRunner(connection, 50, now);
    source.answer = forEver;
    let sent = 0;
    source.clients[0]!.query = () => (sent++, forEver());
    const [overdue, ...waiting] = await Promise.all([1, 2, 3].map(() => runner.ask(STATEMENT, [])));
    expect(overdue).toMatchObject({ mayHaveRun: true, problem: 'no answer within 50 ms' });
    for (const fault of waiting) expect(fault).toMatchObject({ mayHaveRun: false, disconnected: true });
    expect(waiting.every((fault) => fault instanceof SqlFault)).toBe(true);
    expect(sent).toBe(1);
    expect(runner.isAnswered).toBe(true);
  });

  it.each([
    '57P01',
    'ECONNRESET',
    'ERR_SSL_DECRYPTION_FAILED_OR_BAD_RECORD_MAC',
    'ERR_STREAM_DESTROYED',
    'PROTOCOL_CONNECTION_LOST',
  ])(
    'that fails under a statement by %s is not used for the next one, though the client has not yet noticed',
    async (code) => {
      const source = new FakeSource();
      const connection = connectionTo(source, admitsAll);
      await connection.ready(60_000);
      const runner = new StatementRunner(connection, 60_000, now);
      let sent = 0;
      source.clients[0]!.query = () => (sent++, Promise.reject(Object.assign(new Error('terminated'), { code })));
      const faults = await Promise.all([1, 2].map(() => runner.ask(STATEMENT, [])));
      expect(faults).toMatchObject([{ mayHaveRun: true }, { mayHaveRun: false }]);
      expect(sent).toBe(1);
      await until(() => connection.isReady, { what: 'it is made anew' });
      expect(source.clients[0]!.isClosed).toBe(true);
    },
  );
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

describe('The inbox of a process', () => {
  const inboxOn = (source: FakeSource, notify: () => Promise<void>) => {
    const calls: string[] = [];
    const listener = {
      onMessage: () => {},
      onListening: () => void calls.push('listening'),
      onDeaf: () => void calls.push('deaf'),
    };
    const inbox = new PostgresInbox('channel', source, () => Promise.resolve(), notify, listener);
    onTestFinished(() => inbox.close());
    return { calls, inbox };
  };

  it('is not taken for deaf when its connection ends before its test message has come', async () => {
    const source = new FakeSource();
    const { calls, inbox } = inboxOn(source, () => {
      source.clients.at(-1)!.end();
      return Promise.resolve();
    });
    inbox.open();
    await until(() => source.clients[0]?.isClosed, { what: 'it is closed' });
    await until(
      () => {
        inbox.open();
        return source.clients.length > 1;
      },
      { what: 'it is tried again' },
    );
    expect(calls).toEqual([]);
    expect(inbox.isOpen).toBe(false);
  });

  it('is tried again when the server never begins to listen', async () => {
    const source = new FakeSource();
    source.listen = forEver;
    const { calls, inbox } = inboxOn(source, () => Promise.resolve());
    await until(
      () => {
        inbox.open();
        return source.clients.length > 1;
      },
      { what: 'it is tried again' },
    );
    expect(source.clients[0]!.isClosed).toBe(true);
    expect(calls).toEqual([]);
  });
});
