import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { LockService, RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { serversOfFile } from '../support/stage.js';

const servers = await serversOfFile(3);
const redis = servers[0]!;

const TTL_MS = 6_000;
/** The first extension comes within a third of the ttl; the rest is for a command or two. In milliseconds. */
const EXTENDED_WITHIN_MS = TTL_MS / 3 + 100;
/** After that time nothing older is shown. In milliseconds. */
const SHOWN_MS = TTL_MS / 2 + 100;

let keys = 0;
const freshKey = () => `behind ${++keys}`;
/** A call that waits, and what makes it give up. */
function wait(locks: LockService, key: string, mode: 'exclusive' | 'shared' = 'exclusive') {
  const giveUp = new AbortController();
  const lock = locks.acquire(key, { waitMs: 600_000, ttlMs: TTL_MS, mode, signal: giveUp.signal });
  lock.catch(() => {});
  return { lock, giveUp: () => giveUp.abort() };
}
const behind = async (locks: LockService, key: string) => (await locks.inspect(key))!.holders[0]!.waiters;
const isTold = (key: string) => redis.command('EXISTS', `lock:{${key}}:calls`);

it.each<[string, () => RedisLockModuleOptions]>([
  ['on one Redis', () => ({ redis: redis.url })],
  ['in fair mode', () => ({ redis: redis.url, fair: true })],
  ['on a Redlock', () => ({ redlock: servers.map(({ url }) => url), admission: false })],
])(
  "how many calls wait behind a lock in its holder's process is shown to others, as of half a ttl ago at most (%s) [G936]",
  async (_where, options) => {
    const [holding, other] = [await openLocks(options()), await openLocks(options())];
    const key = freshKey();
    const lock = await holding.acquire(key, { ttlMs: TTL_MS });
    const calls = [1, 2, 3].map(() => wait(holding, key));
    await sleep(100);
    expect(await behind(holding, key)).toBe(3); // the process itself knows at once
    expect(await behind(other, key)).toBeUndefined();
    await sleep(EXTENDED_WITHIN_MS);
    expect(await behind(other, key)).toBe(3);
    const [listed] = (await other.list({ match: key })).locks;
    expect(listed).toMatchObject({ key, waiters: 0, waitingProcesses: [], holders: [{ waiters: 3 }] });

    calls[0]!.giveUp();
    calls[1]!.giveUp();
    await sleep(SHOWN_MS);
    expect(await behind(other, key)).toBe(1);
    calls[2]!.giveUp();
    await sleep(SHOWN_MS);
    expect(await behind(other, key)).toBeUndefined();
    expect(await behind(holding, key)).toBe(0);
    expect(await isTold(key)).toBe(0);
    await lock.release();
  },
);

it('what the last holder has told is not shown of the next one in another process [G937]', async () => {
  const [holding, other] = [await openLocks({ redis: redis.url }), await openLocks({ redis: redis.url })];
  const key = freshKey();
  const lock = await holding.acquire(key, { ttlMs: TTL_MS });
  const calls = [wait(holding, key), wait(holding, key)];
  await sleep(EXTENDED_WITHIN_MS);
  for (const call of calls) call.giveUp();
  const { lock: next } = wait(other, key);
  await untilQueued(redis, key, 1);
  await lock.release();
  const taken = await next;
  expect(await isTold(key)).toBe(1);
  const viewer = await openLocks({ redis: redis.url });
  expect(await viewer.inspect(key)).toMatchObject({
    holder: { owner: taken.owner },
    holders: [{ waiters: undefined }],
  });
  await taken.release();
});
