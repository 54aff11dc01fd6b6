import { describe, expect, it, onTestFinished } from 'vitest';
import { LockUnavailableError } from 'nest-redis-lock';
import type { PostgresLockModuleOptions } from 'nest-redis-lock/sql';
import type { LockBackend } from 'nest-redis-lock/testing';
import { openSqlLocks } from '../support/open-locks.js';
import {
  acquireOn,
  claimOn,
  connectedSql,
  extendOn,
  freshKey,
  granted,
  holderOn,
  placeOf,
  releaseOn,
  type Claim,
} from '../support/claims.js';
import { proxyTo } from '../support/stage.js';
import type { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { LockWorker } from './lock-worker.js';
import { blocked, ownPostgres, PATIENT, postgresOfFile, sessionOn, urlBy } from './stage.js';

const server = await postgresOfFile();

async function backendOn(options: Partial<PostgresLockModuleOptions> = {}): Promise<LockBackend> {
  const backend = await connectedSql({ postgres: server.url, ...options });
  onTestFinished(() => backend.close());
  return backend;
}

/** A backend whose connections go through a proxy. */
async function proxied(commandTimeoutMs: number): Promise<{ backend: LockBackend; proxy: TcpProxy }> {
  const proxy = await proxyTo(server);
  return { proxy, backend: await backendOn({ postgres: urlBy(proxy), commandTimeoutMs }) };
}

/** Creates rows of free locks. */
async function usedKeys(backend: LockBackend, count: number): Promise<string[]> {
  const claims = Array.from({ length: count }, () => claimOn(freshKey()));
  await Promise.all(claims.map((claim) => granted(backend, claim)));
  await Promise.all(claims.map((claim) => releaseOn(backend, claim)));
  return claims.map(({ key }) => key).sort();
}

/** Waits until a lock is free. */
const isFreed = (backend: LockBackend, key: string) =>
  until(async () => (await holderOn(backend, key).catch(() => 'unknown')) === undefined, { what: `${key} is free` });

/** Waits until an attempt at a lock has succeeded. @returns the attempt */
const isHad = (backend: LockBackend, key = freshKey()) =>
  until(
    async () => {
      const claim = claimOn(key);
      return (await acquireOn(backend, claim)).status === 'acquired' ? claim : undefined;
    },
    { what: `${key} is acquired` },
  );

describe('Locks in PostgreSQL', () => {
  it('are granted although the session is terminated in the middle of the statement [G655]', async () => {
    const backend = await backendOn(PATIENT);
    const [key] = (await usedKeys(backend, 1)) as [string];
    const other = await sessionOn(server);
    await other.query('LOCK TABLE resource_lock');
    const claim = claimOn(key);
    const acquired = acquireOn(backend, claim, placeOf(claim.owner));
    await server.query('SELECT pg_terminate_backend($1)', [await blocked(server)]);
    await other.query('COMMIT');
    expect(await acquired).toMatchObject({ status: 'acquired' });
    expect((await holderOn(backend, key))!.owner).toBe(claim.owner);
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
  });

  it('leave nothing behind of an attempt whose reply never came [G656]', async () => {
    const { backend, proxy } = await proxied(500);
    // The first statement that is sent for a lock does not take it if the lock has no row.
    const [used] = (await usedKeys(backend, 1)) as [string];
    const [alone, queued, held] = [used, freshKey(), freshKey()].map((key) => claimOn(key, 600_000)) as [
      Claim,
      Claim,
      Claim,
    ];
    await granted(backend, held);
    proxy.dropReplies();
    const outcomes = await Promise.all([acquireOn(backend, alone), acquireOn(backend, queued, placeOf(queued.owner))]);
    for (const outcome of outcomes) {
      expect(outcome).toMatchObject({ status: 'unavailable', causes: [{ advice: expect.stringContaining('server') }] });
    }
    expect(await extendOn(backend, held)).toMatchObject({ status: 'unavailable' });
    proxy.passReplies();
    for (const { key } of [alone, queued]) await isFreed(backend, key);
    await until(async () => (await extendOn(backend, held)).status === 'extended', {
      what: 'it can be extended again',
    });
    expect(await releaseOn(backend, held)).toEqual({ status: 'released' });
  });

  it('cannot be acquired while the server accepts connections and never answers, but once it answers [G657]', async () => {
    const { backend, proxy } = await proxied(300);
    proxy.dropReplies();
    expect(await acquireOn(backend, claimOn(freshKey()))).toMatchObject({ status: 'unavailable' });
    const starting = openSqlLocks({
      postgres: urlBy(proxy),
      commandTimeoutMs: 300,
      connectTimeoutMs: 1_500,
    });
    await expect(starting).rejects.toThrow(LockUnavailableError);
    await expect(starting).rejects.toThrow(/127\.0\.0\.1:\d+\/postgres.*Check that the server can be reached/);
    proxy.passReplies();
    await isHad(backend);
  });

  it('continue when a stopped server resumes, and nothing is left of unanswered requests [G658]', async () => {
    const backend = await backendOn({ commandTimeoutMs: 500 });
    const [one, other] = (await usedKeys(backend, 2)) as [string, string];
    const [held, late] = [claimOn(one, 600_000), claimOn(other, 600_000)];
    await until(async () => (await acquireOn(backend, held)).status === 'acquired', { what: 'it is held' });
    await server.pause();
    const outcomes = await Promise.all([acquireOn(backend, late), releaseOn(backend, held)]).finally(() =>
      server.resume(),
    );
    expect(outcomes).toMatchObject([{ status: 'unavailable' }, { status: 'unavailable' }]);
    for (const { key } of [held, late]) await isFreed(backend, key);
    await isHad(backend, held.key);
  });

  it('are still held after a crash of the server, and tokens keep growing [G659]', async () => {
    const backend = await backendOn();
    const [kept, freed] = [claimOn(freshKey(), 60_000), claimOn(freshKey())];
    await granted(backend, kept);
    const { fencingToken } = await granted(backend, freed);
    await releaseOn(backend, freed);
    await server.kill();
    await until(async () => (await acquireOn(backend, claimOn(freed.key))).status === 'unavailable', {
      what: 'it is down',
    });
    await server.restart();
    const next = await isHad(backend, freed.key);
    expect(next.grant!.fencingToken).toBeGreaterThan(fencingToken);
    expect(await extendOn(backend, kept)).toMatchObject({ status: 'extended' });
    expect(await acquireOn(backend, claimOn(kept.key))).toMatchObject({ status: 'contended', owner: kept.owner });
    for (const claim of [kept, next]) await releaseOn(backend, claim);
  });

  it('cost little while the server is down, however many releases are open, and are released when it is back [G660]', async () => {
    const { backend, proxy } = await proxied(2_000);
    const claims = Array.from({ length: 300 }, () => claimOn(freshKey(), 60_000));
    await Promise.all(claims.map((claim) => granted(backend, claim)));
    proxy.refuse();
    proxy.cut();
    const downSince = performance.now();
    const releases = await Promise.all(claims.map((claim) => releaseOn(backend, claim)));
    expect(new Set(releases.map(({ status }) => status))).toEqual(new Set(['unavailable']));
    await proxy.accept();
    proxy.retarget(1); // nobody listens there
    const madeBefore = proxy.made;
    await until(() => performance.now() - downSince > 2_000, { what: 'it was down for 2 s' });
    // Pauses grow from 50 ms to 2 s, and are at least 0.75 of that.
    expect(proxy.made - madeBefore).toBeLessThanOrEqual(7 + (performance.now() - downSince) / 1_500);
    let said = 0;
    backend.onReachable = () => void said++;
    proxy.retarget(server.port);
    const held = () =>
      server.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = ANY($1) AND expires_at > clock_timestamp()', [
        claims.map(({ key }) => key),
      ]);
    await until(async () => (await held()).length === 0, { what: 'all are given back' });
    expect(said).toBeGreaterThan(0);
  });

  it('are refused with advice by a replica, and can be acquired once it is the primary, without a restart [G661]', async () => {
    const replica = await ownPostgres();
    const before = await backendOn({ postgres: replica.url });
    await granted(before, claimOn(freshKey()));
    await replica.becomeReplica();
    const opening = openSqlLocks({ postgres: replica.url, connectTimeoutMs: 2_000 });
    await expect(opening).rejects.toThrow(LockUnavailableError);
    await expect(opening).rejects.toThrow(/read-only.*address leads to the primary/);
    await until(
      async () => {
        const outcome = await acquireOn(before, claimOn(freshKey()));
        return outcome.status === 'unavailable' && outcome.causes.every(({ problem }) => problem.includes('read-only'));
      },
      { what: 'the replica is recognised' },
    );
    await replica.query('SELECT pg_promote()');
    await isHad(before);
  });

  it('do not wait for the one of them whose row another session holds, which is refused with advice [G662]', async () => {
    const backend = await backendOn({ commandTimeoutMs: 2_000 });
    const keys = await usedKeys(backend, 10);
    const stuck = keys[4]!;
    const other = await sessionOn(server, stuck);
    const claims = keys.map((key) => claimOn(key));
    // Something is in flight, so that they travel together.
    const [, ...outcomes] = await Promise.all([
      backend.inspect(keys[0]!),
      ...claims.map((claim) => acquireOn(backend, claim)),
    ]);
    const advised = expect.objectContaining({ advice: expect.stringContaining('Another session holds the row') });
    const [refused] = outcomes.splice(keys.indexOf(stuck), 1);
    expect(refused).toEqual({ status: 'unavailable', causes: [advised] });
    expect(outcomes.map(({ status }) => status)).toEqual(Array.from({ length: 9 }, () => 'acquired'));
    await other.query('COMMIT');
    await isHad(backend, stuck);
  });

  it('are granted although their statement was in a deadlock with another session', async () => {
    const backend = await backendOn({ commandTimeoutMs: 60_000 });
    /** @returns nothing if the two keys were not in one statement, so that there was no deadlock */
    const deadlocked = async () => {
      const [first, second] = [freshKey(), freshKey()].sort() as [string, string];
      const other = await sessionOn(server);
      const insert = (key: string) =>
        other.query(`INSERT INTO resource_lock VALUES ($1, 'other', 1, false, '{}', 0, now(), now(), now())`, [key]);
      await insert(second);
      await other.query(`SET deadlock_timeout = '60s'`); // so it is not the victim
      const acquired = Promise.all([
        backend.inspect(first), // in flight, so that they travel together
        ...[first, second].map((key) => acquireOn(backend, claimOn(key))),
      ]);
      await blocked(server);
      // The statement has inserted it: either it is the victim, or this session is.
      const isDeadlock = await insert(first).then(
        () => true,
        ({ code }: { code: string }) => code !== '23505',
      );
      await other.query('ROLLBACK');
      const [, ...outcomes] = await acquired;
      return isDeadlock ? outcomes : undefined;
    };
    const outcomes = await until(deadlocked, { what: 'a deadlock' });
    expect(outcomes).toMatchObject([{ status: 'acquired' }, { status: 'acquired' }]);
  });

  it('have one table after eight processes have created it at once [G663]', async () => {
    for (let round = 0; round < 2; round++) {
      await server.query('DROP TABLE IF EXISTS made_at_once');
      const backends = await Promise.all(Array.from({ length: 8 }, () => backendOn({ table: 'made_at_once' })));
      const key = freshKey();
      const outcomes = await Promise.all(backends.map((backend) => acquireOn(backend, claimOn(key))));
      expect(outcomes.filter(({ status }) => status === 'acquired')).toHaveLength(1);
    }
  });

  it.each(['paused', 'killed'])(
    'let a process that closes them end at once while the server is %s [G664]',
    async (how) => {
      const own = await ownPostgres();
      const worker = await LockWorker.start(own.url);
      await worker.holdAndWait();
      if (how === 'paused') await own.pause();
      else await own.kill();
      const ended = worker.closeAndEnd();
      await ended.finally(() => (how === 'paused' ? own.resume() : undefined));
    },
  );
});
