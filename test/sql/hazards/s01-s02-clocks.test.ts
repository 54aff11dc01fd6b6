import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { freshKey } from '../../support/claims.js';
import { PostgresServer } from '../../support/postgres-server.js';
import { NAIVE_TABLES, shedLock, springLock, verrouLock } from './naive.js';
import { connectTo, locksOn, rowOf } from './stage.js';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const TTL_MS = 10 * MINUTE_MS;

let server: PostgresServer;
beforeAll(async () => {
  server = await PostgresServer.start();
  await server.query(NAIVE_TABLES);
});
afterAll(() => server.stop());

describe('S1: the end of the lease is a time of the clients', () => {
  it.each([
    ["ShedLock's statement", shedLock],
    ["Spring Integration's statements", springLock],
    ["Verrou's statements", verrouLock],
  ])('a naive lock by %s has two holders when the clock of a client is ahead', async (_, lock) => {
    const database = await connectTo(server);
    const key = freshKey();
    expect(await lock(database, key, 'A', TTL_MS)).toBe(true);
    expect(await lock(database, key, 'B', TTL_MS)).toBe(false);
    const ahead = { now: () => Date.now() + HOUR_MS };
    expect(await lock(database, key, 'B', TTL_MS, ahead)).toBe(true);
  });

  it.each([
    ['ahead', HOUR_MS],
    ['behind', -HOUR_MS],
  ])(
    'this library asks no clock but that of the database: there is one holder, also of those whose clocks are %s [G750]',
    async (_, skewMs) => {
      const key = freshKey();
      const sound = await locksOn(server);
      const wall = Date.now.bind(Date);
      const clock = vi.spyOn(Date, 'now').mockImplementation(() => wall() + skewMs);
      onTestFinished(() => clock.mockRestore());
      const skewed = await locksOn(server);

      const first = await sound.acquire(key, { ttlMs: TTL_MS });
      expect(await skewed.tryAcquire(key)).toBeNull();
      expect(await first.release()).toBe(true);
      const second = await skewed.acquire(key, { ttlMs: TTL_MS });
      expect(second.fencingToken).toBeGreaterThan(first.fencingToken);
      expect(await sound.tryAcquire(key)).toBeNull();
      const { remainingMs } = (await rowOf(server, key))!;
      expect(remainingMs).toBeGreaterThan(TTL_MS / 2);
      expect(remainingMs).toBeLessThanOrEqual(TTL_MS);
    },
  );
});

describe('S2: the end of the lease is a local time, and clocks are changed to summer time or back', () => {
  const BERLIN = 'Europe/Berlin';
  const at = (time: string) => ({ now: () => Date.parse(time), zone: BERLIN });

  it('a naive lock by local times has two holders when the clocks go forward', async () => {
    const database = await connectTo(server);
    expect(await springLock(database, 'in March', 'A', TTL_MS, at('2026-03-29T00:55Z'))).toBe(true);
    expect(await springLock(database, 'in March', 'B', TTL_MS, at('2026-03-29T00:59Z'))).toBe(false);
    expect(await springLock(database, 'in March', 'B', TTL_MS, at('2026-03-29T01:00Z'))).toBe(true); // after 5 of 10 minutes
  });

  it('a naive lock by local times is held for an hour longer when the clocks go back', async () => {
    const database = await connectTo(server);
    expect(await springLock(database, 'in October', 'A', TTL_MS, at('2026-10-25T00:55Z'))).toBe(true);
    expect(await springLock(database, 'in October', 'B', TTL_MS, at('2026-10-25T02:04Z'))).toBe(false); // for 69 minutes
  });

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
