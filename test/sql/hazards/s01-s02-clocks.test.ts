import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PostgresServer } from '../../support/postgres-server.js';
import { connectTo, locksOn } from './stage.js';

/** Ten minutes. */
const TTL_MS = 600_000;

let server: PostgresServer;
beforeAll(async () => {
  server = await PostgresServer.start();
});
afterAll(() => server.stop());

describe('S2: the end of the lease is a local time, and clocks are changed to summer time or back', () => {
  const BERLIN = 'Europe/Berlin';

  /** A database of that zone whose clock the test sets: what is called `clock_timestamp` there is a function of the test. */
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
