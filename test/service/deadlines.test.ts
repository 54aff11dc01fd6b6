import { describe, expect, it } from 'vitest';
import type { LockService, RedisLockModuleOptions, TryAcquireOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { proxyTo, serversOfFile } from '../support/stage.js';
import { until } from '../support/until.js';

/** This many calls that each need their own command take more than 12 round trips. */
const CALLS = 400;
const ROUND_TRIP_MS = 300;
/** It ends before the fifth of them. */
const WAIT_MS = 1_200;
/** Each has another ttl, so that none travels with another. */
const TTL_MS = 60_000;

const servers = await serversOfFile(3);

/** A service whose servers are far away, and which is just reconnecting. */
async function reconnecting(
  sourceOf: (urls: string[]) => RedisLockModuleOptions,
  commandTimeoutMs = 1_000,
): Promise<{ locks: LockService; connect: () => void }> {
  const proxies = await Promise.all(servers.map(proxyTo));
  const locks = await openLocks({
    ...sourceOf(proxies.map(({ url }) => url)),
    ttlMs: TTL_MS + CALLS,
    commandTimeoutMs,
  });
  await (await locks.acquire('warm-up', { ttlMs: TTL_MS + CALLS })).release();
  for (const proxy of proxies) {
    proxy.hold();
    proxy.cut();
    proxy.roundTripMs = ROUND_TRIP_MS;
  }
  await until(async () => !(await locks.ping()).available, { what: 'the service to notice' });
  return { locks, connect: () => proxies.forEach((proxy) => proxy.release()) };
}

describe.each<[string, (urls: string[]) => RedisLockModuleOptions]>([
  ['one Redis', ([redis]) => ({ redis: redis! })],
  ['a Redlock', (redlock) => ({ redlock, admission: false })],
])('calls that come during a reconnect, of %s', (_, sourceOf) => {
  const acquiring: [
    string,
    (locks: LockService, call: number, options: TryAcquireOptions) => Promise<{ release(): unknown } | null>,
  ][] = [
    ['that wait end', (locks, call, options) => locks.acquire(`key:${call}`, { ...options, waitMs: WAIT_MS })],
    ['that try once end', (locks, call, options) => locks.tryAcquire(`key:${call}`, options)],
    [
      'for sets end',
      (locks, call, options) => locks.acquireAll([`key:${call}`, `more:${call}`], { ...options, waitMs: WAIT_MS }),
    ],
  ];
  it.each(acquiring)('%s in time, and what was not sent by then is never sent [G522]', async (_, acquire) => {
    const { locks, connect } = await reconnecting(sourceOf);
    const calls = Array.from({ length: CALLS }, (_, call) =>
      acquire(locks, call, { ttlMs: TTL_MS + call, watchdog: false }),
    );
    connect();
    const ended = await Promise.allSettled(calls);
    const refused = ended.filter((call) => call.status === 'rejected');
    expect(refused.length).toBeGreaterThan(CALLS / 2); // with more time, all of them would be granted
    for (const { reason } of refused) expect(reason).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    for (const call of ended) if (call.status === 'fulfilled') void call.value?.release();
    await until(() => locks.size === 0, { what: 'all attempts have ended' });
  });

  it('end when their waitMs has passed before the connection is there, and are not sent then [G528]', async () => {
    const { locks, connect } = await reconnecting(sourceOf, 20_000);
    for (const server of servers) await server.resetCalls();
    await expect(locks.acquire('key', { waitMs: 200 })).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    connect();
    await until(() => locks.size === 0, { what: 'the attempt has ended' });
    for (const server of servers) expect(await server.calls()).not.toHaveProperty('evalsha');
  });
});
