import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { PACKAGES } from '../adapters/packages.js';
import { blockEventLoop, redisServer } from '../support/stage.js';

const COMMAND_TIMEOUT_MS = 300;

describe.each(Object.entries(PACKAGES))('With %s', (_name, { withPrefix }) => {
  it('synchronous work that is longer than commandTimeoutMs ends no call, extension or release that came just before [G1026]', async () => {
    const server = await redisServer();
    const locks = await openLocks({
      redis: withPrefix(server.url, '') as never,
      commandTimeoutMs: COMMAND_TIMEOUT_MS,
      ttlMs: 60_000,
    });
    await locks.withLock('warm', () => {});
    const inTheMeantime = async <T>(call: Promise<T>): Promise<T> => {
      blockEventLoop(2 * COMMAND_TIMEOUT_MS);
      return call;
    };
    const lock = await inTheMeantime(locks.acquire('key'));
    await inTheMeantime(lock.extend());
    expect(await inTheMeantime(lock.release())).toBe(true);
  });
});
