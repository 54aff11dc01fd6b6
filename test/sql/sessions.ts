import { expect } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { proxyTo } from '../support/stage.js';
import { until } from '../support/until.js';

/** A server of one test. */
export interface SessionServer {
  readonly port: number;
  /** A lock service. @param port default: its own */
  locks(options: { commandTimeoutMs?: number }, port?: number): Promise<LockService>;
  /** The number of its sessions for locks. */
  sessions(): Promise<number>;
  /** Makes each commit wait for a replica that does not exist, or stops that. */
  hangCommits(hang: boolean): Promise<void>;
}

/** A statement reaches the server after its attempt was undone. */
export async function statementComesLate(server: SessionServer): Promise<void> {
  const proxy = await proxyTo(server);
  const locks = await server.locks({ commandTimeoutMs: 500 }, proxy.port);
  const other = await server.locks({});
  await until(() => locks.withLock('late', () => true).catch(() => false), { what: 'its row is there' });
  proxy.holdPresent();
  const refused = locks.acquire('late', { ttlMs: 600_000, waitMs: 0 });
  await expect(refused).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  // It now uses another connection, on which it has first undone the attempt.
  await until(() => locks.withLock('next', () => true).catch(() => false), { what: 'locks can be taken again' });
  proxy.release();
  await until(async () => (await server.sessions()) === 2, { what: 'the session of the late statement has ended' });
  const lock = await other.tryAcquire('late');
  expect(lock?.isHeld).toBe(true);
  await lock!.release();
}

/** Commits hang, and statements are given up, until calls are refused for one of these reasons. */
export async function commitsHang(server: SessionServer, reason: string, locks: LockService): Promise<void> {
  await server.hangCommits(true);
  const counts: number[] = [];
  await until(
    async () => {
      const ended: unknown = await locks
        .acquire(`key ${counts.length}`, { waitMs: 400 })
        .catch((error: unknown) => error);
      expect(ended).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      counts.push(await server.sessions());
      return counts.length >= 6 && String(ended).includes(reason);
    },
    { what: 'the reason is given' },
  );
  expect(Math.max(...counts)).toBeLessThanOrEqual(2);
  await server.hangCommits(false);
  await until(() => locks.withLock('key 0', () => true).catch(() => false), { what: 'locks can be taken' });
}
