import { describe, expect, it } from 'vitest';
import { freshKey } from '../support/claims.js';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { onPGlite } from './pglite.js';
import { postgresOfFile } from './stage.js';

const server = await postgresOfFile();

const onServer = async () => ({ postgres: server.url, commandTimeoutMs: 20_000 });

describe.each([
  ['a PostgreSQL', onServer],
  ['a PGlite', onPGlite],
])('a lock in a table of %s', (_, options) => {
  it("shows others how many calls wait in its holder's process, as of its last extension [G944]", async () => {
    const settings = await options();
    const [holding, other] = [await openSqlLocks(settings), await openSqlLocks(settings)];
    const key = freshKey();
    const behind = async () => (await other.inspect(key))!.holders[0]!.waiters;
    const shows = (calls?: number) =>
      until(async () => (await behind()) === calls, { what: `it shows ${calls} calls` });
    const lock = await holding.acquire(key, { ttlMs: 900 });
    const giveUp = new AbortController();
    const waits = (signal?: AbortSignal) => holding.acquire(key, { ttlMs: 60_000, waitMs: 600_000, signal });
    const next = waits();
    const gone = [waits(giveUp.signal), waits(giveUp.signal)];
    await shows(3);
    expect((await other.list({ match: key })).locks).toMatchObject([
      { waitingProcesses: [], holders: [{ waiters: 3 }] },
    ]);
    giveUp.abort();
    expect(await Promise.allSettled(gone)).toMatchObject([{ status: 'rejected' }, { status: 'rejected' }]);
    await shows(1);
    await lock.release();
    const last = await next;
    const theirs = other.acquire(key, { waitMs: 600_000 });
    await last.release();
    const { owner } = await theirs;
    expect(await holding.inspect(key)).toMatchObject({ holder: { owner }, holders: [{ waiters: undefined }] });
    await (await theirs).release();
  });
});
