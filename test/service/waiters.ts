import type { LockService } from '../../lib/index.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

/** Takes the lock once, waiting for it. */
export type TakeTurn = (key: string) => Promise<unknown>;

export function turnOf(locks: LockService): TakeTurn {
  return (key) => locks.withLock(key, { waitMs: 60_000 }, () => {});
}

/** Lets these wait for a lock that another process holds: from then on they listen. */
export async function haveWaited(
  server: RedisServer,
  key: string,
  others: LockService,
  ...waiters: TakeTurn[]
): Promise<void> {
  const holder = await others.acquire(key);
  const turns = waiters.map((takeTurn) => takeTurn(key));
  const listening = async () => {
    const signs = (await server.command('ZRANGE', `lock:{${key}}:queue`, '-inf', '(0', 'BYSCORE')) as string[];
    return signs.filter((sign) => sign.startsWith('h')).length;
  };
  await until(async () => (await listening()) === waiters.length, {
    what: `${waiters.length} have said that they listen`,
  });
  await holder.release();
  await Promise.all(turns);
}

/**
 * Lets three services wait for a lock that another process holds, with two calls each.
 * @returns `served` resolves when all of them have had their turn, with the largest number of simultaneous holders
 */
export async function crowd(server: RedisServer, key: string, url = server.url) {
  const open = () => openLocks({ redis: url, commandTimeoutMs: 5_000 });
  const [services, holding] = [await Promise.all([open(), open(), open()]), await open()];
  const holder = await holding.acquire(key);
  let [inside, most] = [0, 0];
  const calls = services.flatMap((locks) =>
    [1, 2].map(() =>
      locks.withLock(key, { waitMs: 60_000, onLost: 'ignore' }, async () => {
        most = Math.max(most, ++inside);
        await Promise.resolve();
        inside--;
      }),
    ),
  );
  await untilQueued(server, key, 3);
  return { holding, holder, served: Promise.all(calls).then(() => most) };
}
