import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { LockUnavailableError } from 'nest-redis-lock';
import type { SqlLockModuleOptions } from 'nest-redis-lock/sql';
import { openPostgres } from '../../lib/stores/sql/postgres/postgres-source.js';
import type { SqlClient } from '../../lib/stores/sql/sql-client.js';
import { freshKey } from '../support/claims.js';
import { openSqlLocks } from '../support/open-locks.js';
import { randomOf } from '../support/random.js';
import { proxyTo } from '../support/stage.js';
import { until } from '../support/until.js';
import { describeHazards, type HazardDatabase, type Pool } from './hazards.js';
import {
  blocked,
  blockedSessions,
  connectTo,
  expire,
  listening,
  locksOn,
  ownPostgres,
  PATIENT,
  postgresOfFile,
  queued,
  rowOf,
  sessionOn,
  urlBy,
} from './stage.js';
import { ddl, postgresStatements, statements, turnValues } from './statements.js';

const TTL_MS = 600_000;

// Nobody gathers statistics, unless a test does.
const server = await postgresOfFile({ deadlock_timeout: '20ms', autovacuum: 'off' });
const { turn, giveAndTurn, extend, give, sweep, take } = statements;

function poolOf(most: number): Pool {
  const pool = new pg.Pool({ connectionString: server.url, max: most });
  pool.on('error', () => {});
  onTestFinished(() => void pool.end());
  return { source: pool, take: () => pool.connect() };
}

describeHazards('PostgreSQL', async (): Promise<HazardDatabase> => ({
  port: server.port,
  url: (port = server.port) => urlBy({ port }),
  run: (text) => server.query(text),
  driverConnection: () => connectTo(server),
  pool: poolOf,
  locks: (source = server.url, options = {}) =>
    openSqlLocks({ postgres: source, ...PATIENT, ...options } as SqlLockModuleOptions),
  rowOf: (key) => rowOf(server, key),
}));

describe('S2: the end of the lease is a local time, and clocks are changed to summer time or back', () => {
  const BERLIN = 'Europe/Berlin';

  /** A database of that zone whose clock the test sets: `clock_timestamp` there is a function of the test. */
  async function movedClock(name: string): Promise<{ url: string; moveTo: (time: string) => Promise<void> }> {
    await server.query(`CREATE DATABASE ${name}`);
    const url = server.url.replace(/postgres$/, name);
    const database = await connectTo({ url });
    await database.query(`
      CREATE SCHEMA moved; CREATE TABLE moved.clock (at timestamptz); INSERT INTO moved.clock VALUES ('epoch');
      CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT at FROM moved.clock';
      ALTER DATABASE ${name} SET search_path = moved, pg_catalog, public; ALTER DATABASE ${name} SET timezone = '${BERLIN}'`);
    return { url, moveTo: async (time) => void (await database.query('UPDATE moved.clock SET at = $1', [time])) };
  }

  it.each([
    ['forward', '2026-03-29T00:55Z', '2026-03-29T01:04:59Z', '2026-03-29T01:05:01Z'],
    ['back', '2026-10-25T00:40Z', '2026-10-25T00:49:59Z', '2026-10-25T00:50:01Z'],
  ])(
    'this library holds a lock for exactly its ttl when the clocks of the database go %s [G751]',
    async (direction, start, before, after) => {
      const { url, moveTo } = await movedClock(`clocks_go_${direction}`);
      await moveTo(start);
      const [a, b] = [await locksOn({ url }), await locksOn({ url })];
      await a.acquire('key', { ttlMs: TTL_MS });
      await moveTo(before);
      expect(await b.tryAcquire('key')).toBeNull();
      await moveTo(after);
      expect(await b.tryAcquire('key')).not.toBeNull();
    },
  );
});

describe('S5: a transaction guards the lock while its lease ends', () => {
  it('this library takes the lock over once that transaction has ended, whether a call asks at once, waits, or comes later [G754]', async () => {
    const [a, b] = [await locksOn(server), await locksOn(server)];
    const key = freshKey();
    const lock = await a.acquire(key, { ttlMs: TTL_MS });
    const tx = await connectTo(server);
    await tx.query('BEGIN');
    const guard = 'SELECT 1 FROM resource_lock WHERE resource_lock_key = $1 AND resource_lock_value = $2 FOR KEY SHARE';
    expect((await tx.query(guard, [key, lock.owner])).rowCount).toBe(1);
    await expire(server, key); // an extension could undo it, too: a guard lets both through

    expect(await b.tryAcquire(key)).toBeNull();
    let hasTurn = false;
    const waiting = b.acquire(key, { waitMs: TTL_MS }).finally(() => (hasTurn = true));
    await queued(server, key);
    expect(await b.tryAcquire(key)).toBeNull();
    expect((await rowOf(server, key))!.holder).toBe(lock.owner);
    expect(hasTurn).toBe(false);
    await tx.query('COMMIT');
    expect((await waiting).fencingToken).toBeGreaterThan(lock.fencingToken);
  });
});

describe('S9: several locks are taken at once, each time in another order', () => {
  it('this library locks rows in the order of their keys, in every statement for many locks: there is no deadlock [G757]', async () => {
    await (await locksOn(server)).withLock(freshKey(), () => {});
    const source = await openPostgres(server.url, PATIENT.commandTimeoutMs);
    const keys = Array.from({ length: 60 }, () => freshKey());
    const random = randomOf(9);
    const shuffled = () =>
      keys
        .map((key) => ({ key, at: random() }))
        .sort((one, other) => one.at - other.at)
        .map(({ key }) => key);
    const fill = <T>(value: T) => keys.map(() => value);
    const turns = (asked: { give?: string; owner?: string }) =>
      turnValues(shuffled().map((key) => ({ key, ...asked })));

    const sessions: SqlClient[] = [];
    for (let each = 0; each < 5; each++) sessions.push(await source.connect(() => {}));
    const [sweeper, ...racers] = sessions as [SqlClient, ...SqlClient[]];
    const failed: unknown[] = [];
    let granted = 0;
    const race = async (client: SqlClient, owner: string) => {
      for (let round = 0; round < 20; round++) {
        const rows = await client.query(turn, turns({ owner }));
        granted += rows.filter(({ is_taken }) => Number(is_taken) === 1).length;
        await client.query(extend, [shuffled(), fill(owner), fill(TTL_MS), fill(false), fill(0)]);
        await client.query(giveAndTurn, turns({ give: owner }));
      }
    };
    let isRacing = true;
    const sweeping = (async () => {
      while (isRacing) await sweeper.query(sweep, ['', 0]);
    })().catch((error: unknown) => failed.push(error));
    await Promise.all(racers.map((client, at) => race(client, `o${at}`).catch((error: unknown) => failed.push(error))));
    isRacing = false;
    await sweeping;
    for (const client of sessions) client.close();
    expect(failed).toEqual([]);
    expect(granted).toBeGreaterThan(keys.length);
  });

  it('this library waits for no row with its statement for many locks: the statement is answered while another session holds one, and delays no INSERT of that session [G788]', async () => {
    const [one, other] = [freshKey(), freshKey()].sort() as [string, string];
    const locks = await locksOn(server);
    for (const key of [one, other]) await locks.acquire(key, { ttlMs: TTL_MS });
    const asking = await openPostgres(server.url, PATIENT.commandTimeoutMs).then((source) => source.connect(() => {}));
    // The plan that reads the rows one by one, which the database is free to choose.
    for (const name of ['enable_hashjoin', 'enable_mergejoin'])
      await asking.query({ name, text: `SET ${name} = off` }, []);
    const owners = [(await rowOf(server, one))!.holder, (await rowOf(server, other))!.holder];
    const blocker = await sessionOn(server, other);
    const extended = await asking.query(extend, [[one, other], owners, [TTL_MS, TTL_MS], [false, false], [0, 0]]);
    const answers = new Map(extended.map((row) => [row.key, row]));
    expect(answers.get(one)).toMatchObject({ is_done: 1, is_skipped: 0 });
    expect(answers.get(other)).toMatchObject({ is_done: 0, is_skipped: 1 });
    await blocker.query(
      'INSERT INTO resource_lock SELECT * FROM resource_lock WHERE resource_lock_key = $1 ON CONFLICT DO NOTHING',
      [one],
    );
    await blocker.query('COMMIT');
    asking.close();
  });
});

/** The time when the only waiting process has last asked, as soon as it does. */
const askedAt = (key: string) =>
  until(async () => (await rowOf(server, key))?.waiters[0]?.split(' ')[3], { what: 'another one waits' });

describe('S12: a statement that was given up runs late', () => {
  it('this library makes the server give up a statement when its time has passed, so that it takes nothing later [G765]', async () => {
    const locks = await locksOn(server, { commandTimeoutMs: 400 });
    const key = freshKey();
    await until(() => locks.withLock(key, () => true).catch(() => false), { what: 'the row of the lock is there' });
    const other = await sessionOn(server, key);
    await expect(locks.acquire(key, { ttlMs: TTL_MS, waitMs: 0 })).rejects.toThrow(LockUnavailableError);
    await until(async () => (await blockedSessions(server)).length === 0, { what: 'no statement waits any more' });
    await other.query('COMMIT');
    expect((await rowOf(server, key))!.isHeld).toBe(false);
  });

  it('this library releases and extends only the lock of the owner that it names [G766]', async () => {
    const [one, other] = [await locksOn(server), await locksOn(server)];
    const database = await connectTo(server);
    const key = freshKey();
    const first = await one.acquire(key, { ttlMs: TTL_MS });
    await expire(server, key);
    const second = await other.acquire(key, { ttlMs: TTL_MS, waitMs: 0 });
    expect((await database.query(give.text, [key, first.owner])).rows).toEqual([]);
    const turned = await database.query(giveAndTurn.text, turnValues([{ key, give: first.owner }]));
    expect(turned.rows).toMatchObject([{ gives: 0, granted: null }]);
    const extended = await database.query(extend.text, [[key], [first.owner], [TTL_MS], [false], [0]]);
    expect(extended.rows).toMatchObject([{ is_done: 0 }]);
    expect((await rowOf(server, key))!).toMatchObject({ holder: second.owner, isHeld: true });
    expect(await second.release()).toBe(true);
  });
});

describe('S13: the server is read-only, as after a failover', () => {
  it('this library says that locks are unavailable, and what to do, instead of claiming that another holder has the lock [G767]', async () => {
    const replica = await ownPostgres();
    await replica.query(ddl('"resource_lock"'));
    await replica.becomeReplica();
    const locks = await locksOn(replica, { lazyConnect: true });
    const refusal = await until(
      async () => {
        const error: unknown = await locks.tryAcquire(freshKey()).then(String, (thrown: unknown) => thrown);
        return error instanceof LockUnavailableError && error.message.includes('it is read-only') ? error : undefined;
      },
      { what: 'the replica is recognised' },
    );
    expect(refusal).toMatchObject({ code: 'LOCK_UNAVAILABLE', status: 503 });
    expect(refusal.message).toContain('the address leads to the primary');
  });
});

describe('S14: a waiting process is not notified of its turn', () => {
  it('this library finds its turn although the connection on which it listens is half open [G768]', async () => {
    const proxy = await proxyTo(server);
    const [holder, waiter] = [await locksOn(server), await locksOn({ url: urlBy(proxy) })];
    const key = freshKey();
    const lock = await holder.acquire(key, { ttlMs: TTL_MS });
    const waiting = waiter.acquire(key, { waitMs: TTL_MS });
    await until(async () => (await listening(server)).length, { what: 'it has begun to listen' });
    const asked = await askedAt(key);
    await until(async () => (await askedAt(key)) !== asked, { what: 'it has asked again, as it hears itself now' });
    proxy.muteSubscriptions();
    expect(proxy.hasMuted).toBe(true);
    expect(await lock.release()).toBe(true);
    expect((await waiting).fencingToken).toBeGreaterThan(lock.fencingToken);
  });

  it('this library finds its turn although the process that passed it on died before it sent the message [G769]', async () => {
    const waiter = await locksOn(server);
    const key = freshKey();
    const dying = await connectTo(server);
    await waiter.withLock(key, () => {});
    expect((await dying.query(take.text, [key, 'dying', TTL_MS])).rowCount).toBe(1);
    const waiting = waiter.acquire(key, { waitMs: TTL_MS });
    await askedAt(key);
    const given = await dying.query(turn.text, turnValues([{ key, give: 'dying' }]));
    expect(given.rows).toMatchObject([{ gives: 1, granted: expect.any(String) }]);
    const lock = await waiting;
    expect((await rowOf(server, key))!).toMatchObject({ holder: lock.owner, isHeld: true });
  });
});

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

  it('this library keeps a row whose tokens are ahead of the clock, as after the clock was set back: the next token is greater [G946]', async () => {
    const locks = await locksOn(server);
    const key = freshKey();
    await locks.withLock(key, () => {});
    const ahead = Date.now() * 1_000 + 86_400_000_000;
    await server.query(`UPDATE resource_lock SET fence = ${ahead} WHERE resource_lock_key = '${key}'`);
    await (await connectTo(server)).query(sweep.text, ['', 0]);
    expect((await locks.acquire(key)).fencingToken).toBe(ahead + 1);
  });

  it('this library takes a lock whose row is just being deleted with a greater token [G761]', async () => {
    const locks = await locksOn(server);
    const key = freshKey();
    const before = await locks.acquire(key);
    await before.release();
    const sweeping = await connectTo(server);
    await sweeping.query('BEGIN');
    await sweeping.query(sweep.text, ['', 0]);
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
  const KEYS = ['key 5', 'key 7000'];

  it('this library finds its rows by their keys, whenever its plans were made [G762]', async () => {
    await server.query(ddl('"large"'));
    const large = postgresStatements('"large"');
    const source = await openPostgres(server.url, PATIENT.commandTimeoutMs);
    const client = await source.connect(() => {});
    const values: Readonly<Record<string, readonly unknown[]>> = {
      [large.turn.name]: turnValues(KEYS.map((key) => ({ key, give: 'a', owner: 'b', ttlMs: 1 }))),
      [large.extend.name]: [KEYS, ['a', 'a'], [1, 1], [false, false], [0, 0]],
      [large.inspect.name]: [KEYS],
      [large.take.name]: [KEYS[0], 'a', 1],
      [large.give.name]: [KEYS[0], 'a'],
      [large.scan.name]: ['key', 'key 5'],
      [large.sweep.name]: ['key 5', TTL_MS],
    };
    const statements = [large.turn, large.extend, large.inspect, large.take, large.give, large.scan, large.sweep];
    for (const statement of statements) await client.query(statement, values[statement.name]!);
    await server.query(
      `INSERT INTO large SELECT 'key ' || n, 'nobody', n, false, '{}', 0, 'epoch', now(), 'epoch' FROM generate_series(1, 20000) AS n ON CONFLICT DO NOTHING`,
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
      const explained = await client.query({ name: `explain_${name}`, text: `EXPLAIN ${execute}` }, []);
      const plan = explained.map((row) => row['QUERY PLAN']).join('\n');
      expect(plan, name).toContain('using large_pkey');
      expect(plan, name).not.toMatch(/(Seq|Heap) Scan on large/); // it is read row by row, in the order of its keys
    }
    client.close();
  });
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
