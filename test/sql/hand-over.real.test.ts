import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import type { PostgresConfig } from 'nest-redis-lock/sql';
import { freshKey } from '../support/claims.js';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { LockWorker } from './lock-worker.js';
import { listening, postgresOfFile, queued, rowOf } from './stage.js';

type Query = { name?: string; text: string; values: unknown[] };

const server = await postgresOfFile();

/**
 * A client of `pg` that shows its messages.
 * @param sees returns whether to send a statement; otherwise it has no rows
 */
function watched(sees: (query: Query) => boolean): PostgresConfig {
  class Watched extends pg.Client {
    override query(...args: unknown[]): never {
      const [query] = args as [Query];
      if (!sees(query)) return Promise.resolve({ rows: [] }) as never;
      return (super.query as (...all: unknown[]) => never)(...args);
    }
  }
  return { connectionString: server.url, Client: Watched };
}

const waitingFor = async (key: string) => [...(await rowOf(server, key))!.waiters];

/**
 * Makes a service listen, as it does once a call of it had to wait.
 * @param holder takes the lock first
 */
async function listens(holder: LockService, waiter: LockService): Promise<void> {
  const key = `a\0b\\0 ${freshKey()}`; // in the messages of a hand-over, too
  const before = (await listening(server)).length;
  const held = await holder.acquire(key);
  const waits = waiter.acquire(key, { waitMs: 60_000 });
  await until(async () => (await listening(server)).length > before, { what: 'it listens' });
  await sleep(100); // its test message
  await held.release();
  await (await waits).release();
}

describe('Locks in PostgreSQL that are handed over', () => {
  it('begin with the message of the grant, without another statement before [G666]', async () => {
    const sent: string[] = [];
    const sees = ({ name }: Query) => sent.push(name ?? '') > 0;
    const holder = await openSqlLocks({ postgres: server.url });
    const waiter = await openSqlLocks({ postgres: watched(sees) });
    await listens(holder, waiter);
    // A check, which comes each second, may come in between.
    await until(
      async () => {
        const key = freshKey();
        const held = await holder.acquire(key);
        const waits = waiter.acquire(key, { waitMs: 60_000 });
        await queued(server, key);
        sent.length = 0;
        await held.release();
        const next = await waits;
        const before = [...sent];
        expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
        await next.release();
        return before.every((name) => name.startsWith('nest_redis_lock_extend_'));
      },
      { what: 'one was begun without asking' },
    );
  });

  it('show the notes of who holds them, who waits, and who has their parcel [G1133]', async () => {
    const [holder, waiter] = [
      await openSqlLocks({ postgres: server.url }),
      await openSqlLocks({ postgres: server.url }),
    ];
    await listens(holder, waiter);
    const [key, note] = [freshKey(), '界'.repeat(100)];
    const shown = async () => (await holder.inspect(key))!;
    const held = await holder.acquire(key, { note: 'before' });
    const waits = waiter.acquire(key, { waitMs: 60_000, note });
    await queued(server, key);
    expect(await shown()).toMatchObject({ holder: { note: 'before' }, waitingProcesses: [{ note }] });
    await held.release();
    const next = await waits;
    expect((await shown()).holder).toMatchObject({ pid: process.pid, note });
    await next.detach({ ttlMs: 60_000 });
    expect((await shown()).holder).toMatchObject({ detached: true, note });
  });

  it('are noticed by a check when the message is lost [G667]', async () => {
    const losing = ({ text }: Query) => !text.includes('pg_notify');
    const holder = await openSqlLocks({ postgres: watched(losing) });
    const waiter = await openSqlLocks({ postgres: server.url });
    await listens(holder, waiter);
    const key = freshKey();
    const held = await holder.acquire(key, { ttlMs: 600_000 });
    const waits = waiter.acquire(key, { waitMs: 60_000 });
    await queued(server, key);
    await held.release();
    expect((await waits).fencingToken).toBeGreaterThan(held.fencingToken);
  });

  it('are handed over by messages again after the session that listens was terminated [G668]', async () => {
    const holder = await openSqlLocks({ postgres: server.url });
    const waiter = await openSqlLocks({ postgres: server.url });
    const before = await listening(server);
    await listens(holder, waiter);
    const [pid] = (await listening(server)).filter((each) => !before.includes(each));
    const key = freshKey();
    const held = await holder.acquire(key, { ttlMs: 600_000 });
    const waits = waiter.acquire(key, { waitMs: 60_000 });
    await queued(server, key);
    await server.query('SELECT pg_terminate_backend($1)', [pid]);
    await until(
      async () => {
        const now = await listening(server);
        return !now.includes(pid!) && now.length > before.length;
      },
      { what: 'it listens again' },
    );
    await held.release();
    expect((await waits).isHeld).toBe(true);
  });

  it('cost only one grant if several processes died at the head of the queue, not one for each [G669]', async () => {
    const key = freshKey();
    const [holder, survivor] = (await Promise.all([1, 2].map(() => openSqlLocks({ postgres: server.url })))) as [
      LockService,
      LockService,
    ];
    const held = await holder.acquire(key, { ttlMs: 600_000 });
    const dying = await LockWorker.start(server.url);
    for (let count = 1; count <= 4; count++) {
      await dying.wait(key);
      await queued(server, key, count);
    }
    const waits = survivor.acquire(key, { waitMs: 60_000 });
    await queued(server, key, 5);
    await dying.kill();
    const dead = (await waitingFor(key)).slice(0, 4).map((entry) => entry.split(' ')[2]);
    const grants = new Set<unknown>();
    let isServed = false;
    const watching = until(
      async () => {
        grants.add((await rowOf(server, key))!.holder);
        return isServed;
      },
      { what: 'the survivor has it', timeoutMs: 60_000 },
    );
    await held.release();
    expect((await waits).isHeld).toBe(true);
    isServed = true;
    await watching;
    // Two seconds of grants are enough to make the others count as silent; a third grant may come before their last
    // signs are so old.
    expect(dead.filter((ticket) => grants.has(ticket)).length).toBeLessThanOrEqual(2);
  });

  it('are served in the order of arrival over two services, if they are fair [G670]', async () => {
    const [holder, ...services] = await Promise.all(
      [1, 2, 3].map(() => openSqlLocks({ postgres: server.url, fair: true })),
    );
    // Each knows the clock of the database as well as its shortest round trip is short.
    for (const locks of services) {
      for (let trip = 0; trip < 20; trip++) await locks.withLock(freshKey(), () => undefined);
    }
    const key = freshKey();
    const held = await holder!.acquire(key, { ttlMs: 600_000 });
    const served: number[] = [];
    const calls = Array.from({ length: 12 }, async (_, at) => {
      await sleep(at * 80);
      await services[Math.floor(at / 2) % 2]!.withLock(key, { waitMs: 120_000 }, () =>
        Promise.resolve(served.push(at)),
      );
    });
    await sleep(12 * 80 + 200);
    await queued(server, key, 2);
    await held.release();
    await Promise.all(calls);
    expect(served).toEqual(Array.from({ length: 12 }, (_, at) => at));
  });

  it('are given back by a process that has no such place any more, as after a failover to a standby that lagged [G1014]', async () => {
    const locks = await openSqlLocks({ postgres: server.url });
    const others = await Promise.all(Array.from({ length: 4 }, () => openSqlLocks({ postgres: server.url })));
    for (const each of others) await listens(locks, each);
    const key = freshKey();
    const holder = await locks.acquire(key);
    const waiting = others.map((each) => each.acquire(key, { waitMs: 60_000 }));
    await queued(server, key, others.length);
    const places = await waitingFor(key);
    await holder.release();
    await Promise.all(waiting.map(async (lock) => (await lock).release()));

    const next = await locks.acquire(key);
    // With signs from the future, which count as new: none of the processes is silent.
    const alive = places.map((place) => place.replace(/ (\d{16})( \d+)$/, ' 9000000000000000$2'));
    await server.query('UPDATE resource_lock SET waiters = $2 WHERE resource_lock_key = $1', [key, alive]);
    const waits = others[0]!.acquire(key, { waitMs: 4_000 }); // four unconfirmed grants would take 8 s
    await queued(server, key, others.length + 1);
    await next.release();
    await (await waits).release();
  });

  it('and whose message comes late are not given back if they are kept [G1015]', async () => {
    const locks = await openSqlLocks({ postgres: server.url });
    const other = await openSqlLocks({ postgres: server.url });
    await listens(locks, other);
    const kept = await other.acquire(freshKey(), { holdMs: 60_000 });
    await kept.release();
    const key = freshKey();
    const behind = await other.acquire(key);
    const owner = behind.owner;
    await behind.release();
    await server.query('UPDATE resource_lock SET expires_at = now() + $2::interval WHERE resource_lock_key = $1', [
      key,
      '1 minute',
    ]);
    const isHeld = async (of: string) => (await rowOf(server, of))!.isHeld;
    const channel = `nest_redis_lock_${Buffer.from(owner.split('/')[2]!).toString('hex')}`;
    const tell = (to: string, of: string) => server.query('SELECT pg_notify($1, $2)', [channel, `${to} 1 1 1 ${of}`]);
    await tell(kept.owner, kept.key);
    await tell(owner, key);
    await until(async () => !(await isHeld(key)), { what: 'the lock that nobody has is released' });
    expect(await isHeld(kept.key)).toBe(true);
  });
});
