import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openPostgres } from '../../../lib/stores/sql/postgres/postgres-source.js';
import { postgresStatements } from '../../../lib/stores/sql/postgres/statements.js';
import type { SqlClient } from '../../../lib/stores/sql/sql-client.js';
import { freshKey } from '../../support/claims.js';
import { PostgresServer } from '../../support/postgres-server.js';
import { randomOf } from '../../support/random.js';
import { connectTo, locksOn, PATIENT, rowOf } from './stage.js';

const TTL_MS = 600_000;

let server: PostgresServer;
beforeAll(async () => {
  server = await PostgresServer.start({ deadlock_timeout: '20ms' });
});
afterAll(() => server.stop());

describe('S9: several locks are taken at once, by everybody in another order', () => {
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
      [
        shuffled(),
        fill(give),
        fill(owner),
        fill(null),
        fill(TTL_MS),
        fill(1),
        fill(null),
        fill(false),
        fill(0),
      ] as unknown[];

    const sessions: SqlClient[] = [];
    for (let each = 0; each < 5; each++) sessions.push(await source.connect(() => {}));
    const [sweeper, ...racers] = sessions as [SqlClient, ...SqlClient[]];
    const failed: unknown[] = [];
    let granted = 0;
    const race = async (client: SqlClient, owner: string) => {
      for (let round = 0; round < 60; round++) {
        const rows = await client.query(turn, turns(null, owner));
        granted += rows.filter(({ is_taken }) => Number(is_taken) === 1).length;
        await client.query(extend, [shuffled(), fill(owner), fill(TTL_MS), fill(false), fill(0)]);
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

  it('this library waits for no row with its statement for many locks: it is answered while another session holds one, and holds up no INSERT of that [G788]', async () => {
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
