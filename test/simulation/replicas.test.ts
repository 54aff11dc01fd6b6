import { describe, expect, it, onTestFinished } from 'vitest';
import { replicaOf } from '../support/replica-of.js';
import type { RedisServer } from '../support/redis-server.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

/**
 * The facts that the tests of failovers rely on. These tests run on simulated servers, and with `npm run test:real` on
 * real ones.
 */
describe('A replica', () => {
  it('treats a key as gone that has expired while its primary hung, and not before', async () => {
    const primary = await redisServer();
    const replica = await replicaOf(primary);
    await primary.command('SET', 'key', 1, 'PX', 1_500);
    await replicated(primary);
    primary.pause();
    onTestFinished(() => primary.resume());
    expect(await replica.command('GET', 'key')).toBe('1');
    await until(async () => (await replica.command('GET', 'key')) === null, { what: 'it is gone' });
    expect(await replica.command('PTTL', 'key')).toBe(-2);
    expect(await replica.keys()).toEqual([]);
  });

  it('that was a primary loses what only it had', async () => {
    const [old, next] = [await redisServer(), await redisServer()];
    await old.command('SET', 'key', 'of the old one');
    await old.command('SET', 'only', 1);
    await next.command('SET', 'key', 'of the new one');
    await old.command('REPLICAOF', '127.0.0.1', next.port);
    await until(async () => (await old.command('GET', 'key')) === 'of the new one', { what: 'it follows' });
    expect(await old.keys()).toEqual(['key']);
    expect(await old.command('ROLE')).toEqual(['slave', '127.0.0.1', next.port, 'connected', expect.any(Number)]);
    await expect(old.command('SET', 'key', 1)).rejects.toThrow(/^READONLY /);
  });
});

/** Its replica has what the primary has. */
async function replicated(primary: RedisServer): Promise<void> {
  await until(async () => (await primary.command('WAIT', 1, 200)) === 1, { what: 'the replica has all changes' });
}
