import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openPostgres } from '../../../lib/stores/sql/postgres/postgres-source.js';
import { postgresStatements } from '../../../lib/stores/sql/postgres/statements.js';
import type { SqlClient } from '../../../lib/stores/sql/sql-client.js';
import { freshKey } from '../../support/claims.js';
import { PostgresServer } from '../../support/postgres-server.js';
import { randomOf } from '../../support/random.js';
import { advisoryLock, NAIVE_TABLES, shedLock } from './naive.js';
import { blocked, connectTo, locksOn, PATIENT, rowOf } from './stage.js';

const TTL_MS = 600_000;

let server: PostgresServer;
beforeAll(async () => {
  server = await PostgresServer.start({ deadlock_timeout: '20ms' });
  await server.query(NAIVE_TABLES);
});
afterAll(() => server.stop());

/** Pairs of keys that one of these takes for one: a checksum of 32 bits, collations, padded text, a number, what cannot be stored. */
const LOOK_ALIKE = [
  ['plumless', 'buckeroo'],
  ['order:1', 'ORDER:1'],
  ['order:1', 'order:1 '],
  ['caf\u00e9', 'cafe\u0301'],
  ['café', 'cafe'],
  ['straße', 'strasse'],
  ['0', 'text'],
  ['a\0b', 'a\\0b'],
  ['a\\b', 'a\\\\b'],
  ['a\0', 'a'],
  ['😀', '😁'],
] as const;

describe('S7: two keys are one lock', () => {
  it("a naive advisory lock by Symfony's checksum is refused as another key has the same one", async () => {
    const [a, b] = [await connectTo(server), await connectTo(server)];
    const [one, other] = LOOK_ALIKE[0];
    expect(await advisoryLock(a, one)).toBe(true);
    expect(await advisoryLock(b, other)).toBe(false); // nobody holds it
  });

  it.each([
    ['whose column has a collation that ignores case', `varchar(64) COLLATE folding`, LOOK_ALIKE[1]],
    ['whose column pads its keys', `char(64) COLLATE "C"`, LOOK_ALIKE[2]],
  ])('a naive lock %s is refused as a similar key is held', async (_, type, [one, other]) => {
    const database = await connectTo(server);
    await database.query(
      `CREATE COLLATION IF NOT EXISTS folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
       ALTER TABLE shedlock ALTER name TYPE ${type}`,
    );
    expect(await shedLock(database, one, 'A', TTL_MS)).toBe(true);
    expect(await shedLock(database, other, 'B', TTL_MS)).toBe(false); // nobody holds it
    await database.query('DELETE FROM shedlock');
  });

  it('this library keeps all of these keys apart, and lists them as they are [G756]', async () => {
    const locks = await locksOn(server, { table: 'look_alike' });
    const keys = [...new Set(LOOK_ALIKE.flat())];
    const held = [];
    for (const key of keys) held.push(await locks.acquire(key, { ttlMs: TTL_MS, waitMs: 0 }));
    expect((await locks.list()).locks.map(({ key }) => key).sort()).toEqual([...keys].sort());
    for (const lock of held.splice(0, keys.length / 2)) expect(await lock.release()).toBe(true);
    for (const lock of held) expect(await locks.tryAcquire(lock.key)).toBeNull();
  });
});

describe('S9: several locks are taken at once, by everybody in another order', () => {
  it('a naive lock on each of two rows, in the opposite order, ends one transaction by a deadlock', async () => {
    const name = 'in another order';
    const [a, b] = [await connectTo(server, { application_name: name }), await connectTo(server)];
    await server.query(`ALTER TABLE shedlock ALTER name TYPE text COLLATE "C"`);
    const [one, other] = [freshKey(), freshKey()];
    for (const client of [a, b]) await client.query('BEGIN');
    await shedLock(a, one, 'A', TTL_MS);
    await shedLock(b, other, 'B', TTL_MS);
    const asking = shedLock(a, other, 'A', TTL_MS);
    const settled = Promise.allSettled([asking]);
    await blocked(server, name).catch(() => {});
    const outcomes = [...(await Promise.allSettled([shedLock(b, one, 'B', TTL_MS)]))];
    for (const client of [b, a]) await client.query('ROLLBACK').catch(() => {});
    outcomes.push(...(await settled));
    const codes = outcomes.map((each) => each.status === 'rejected' && (each.reason as { code: string }).code);
    expect(codes).toContain('40P01');
  });

  it('this library locks rows in the order of their keys, whatever statement for many locks it is: there is no deadlock [G757]', async () => {
    await (await locksOn(server)).withLock(freshKey(), () => {});
    const { turn, giveAndTurn, extend, sweep } = postgresStatements('"resource_lock"');
    const source = await openPostgres(server.url, PATIENT.commandTimeoutMs);
    const keys = Array.from({ length: 60 }, () => freshKey());
    const random = randomOf(9);
    const shuffled = () =>
      keys
        .map((key) => ({ key, at: random() }))
        .sort((one, other) => one.at - other.at)
        .map(({ key }) => key);
    const fill = <T>(value: T) => keys.map(() => value);
    const turns = (give: string | null, owner: string | null) =>
      [shuffled(), fill(give), fill(owner), fill(null), fill(TTL_MS), fill(1), fill(null), fill(false)] as unknown[];

    const sessions: SqlClient[] = [];
    for (let each = 0; each < 5; each++) sessions.push(await source.connect(() => {}));
    const [sweeper, ...racers] = sessions as [SqlClient, ...SqlClient[]];
    const failed: unknown[] = [];
    let granted = 0;
    const race = async (client: SqlClient, owner: string) => {
      for (let round = 0; round < 60; round++) {
        const rows = await client.query(turn, turns(null, owner));
        granted += rows.filter(({ is_taken }) => Number(is_taken) === 1).length;
        await client.query(extend, [shuffled(), fill(owner), fill(TTL_MS), fill(false)]);
        await client.query(giveAndTurn, turns(owner, null));
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

  it('this library has changed no row while its statement for many locks waits for another one: an INSERT of that key need not wait [G788]', async () => {
    const [one, other] = [freshKey(), freshKey()].sort() as [string, string];
    const locks = await locksOn(server);
    for (const key of [one, other]) await locks.acquire(key, { ttlMs: TTL_MS });
    const { extend } = postgresStatements('"resource_lock"');
    const asking = await openPostgres(server.url, PATIENT.commandTimeoutMs).then((source) => source.connect(() => {}));
    // The plan that reads the rows one by one, which it is free to choose.
    for (const name of ['enable_hashjoin', 'enable_mergejoin'])
      await asking.query({ name, text: `SET ${name} = off` }, []);
    const owners = [(await rowOf(server, one))!.holder, (await rowOf(server, other))!.holder];
    const blocker = await connectTo(server);
    await blocker.query('BEGIN');
    await blocker.query('SELECT FROM resource_lock WHERE resource_lock_key = $1 FOR UPDATE', [other]);
    const extending = asking.query(extend, [[one, other], owners, [TTL_MS, TTL_MS], [false, false]]);
    await blocked(server);
    const inserting = blocker.query(
      'INSERT INTO resource_lock SELECT * FROM resource_lock WHERE resource_lock_key = $1 ON CONFLICT DO NOTHING',
      [one],
    );
    // If the INSERT waited, each would wait for the other, and one of them end with an error.
    await Promise.all([inserting.then(() => blocker.query('COMMIT')), extending]);
    asking.close();
  });
});
