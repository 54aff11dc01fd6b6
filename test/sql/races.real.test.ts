import { describe, expect, it } from 'vitest';
import { race } from './race.js';
import { postgresOfFile } from './stage.js';
import { ddl } from './statements.js';

/** `RACE_SECONDS=600 RACE_CONNECTIONS=50 RACE_SEED=7 npm test -- test/sql/races` races for longer, and prints its figures. */
const { RACE_CONNECTIONS = 16, RACE_SECONDS = 2, RACE_SEED = 1 } = process.env;
/** For the race, and for the check of its record. */
const TIMEOUT_MS = Number(RACE_SECONDS) * 1_000 + 300_000;

const server = await postgresOfFile();
await server.query(ddl('"resource_lock"'));

describe('Many connections that race for few locks in a table of PostgreSQL', { timeout: TIMEOUT_MS }, () => {
  const raced = async (level: string) => {
    const [connections, seconds, seed] = [RACE_CONNECTIONS, RACE_SECONDS, RACE_SEED].map(Number) as [
      number,
      number,
      number,
    ];
    await server.query(`ALTER ROLE postgres SET default_transaction_isolation = '${level}'`);
    const record = await race({ url: server.url, connections, seconds, seed });
    const { errors, forced, grants, handedOver, late, swept } = record;
    const problems = record.problems();
    if (process.env.RACE_SECONDS !== undefined) {
      const counts = { grants: grants.length, handedOver, forced, late, swept, errors: Object.fromEntries(errors) };
      console.log(level, { ...counts, problems: problems.length });
    }
    return { problems: problems.slice(0, 5), record };
  };

  it('never have two holders, decreasing tokens, or places that are lost or served out of order [G653]', async () => {
    const { problems, record } = await raced('read committed');
    expect(problems).toEqual([]);
    for (const count of [record.grants.length, record.handedOver, record.forced, record.swept])
      expect(count).toBeGreaterThan(0);
    expect(Object.fromEntries(record.errors)).toEqual({});
  });

  it.each(['repeatable read', 'serializable'])(
    'have no other faults than errors where transactions are %s [G654]',
    async (level) => {
      const { problems, record } = await raced(level);
      expect(problems).toEqual([]);
      expect(record.grants.length).toBeGreaterThan(0);
      expect([...record.errors.keys()].filter((code) => code !== '40001')).toEqual([]);
    },
  );
});
