import { expect, it } from 'vitest';
import { LockUnavailableError } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { clientOf, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

it('an error says that a script or function runs too long on a server [G595]', async () => {
  const redis = await redisServer('--lua-time-limit', '5');
  const locks = await openLocks({ redis: redis.url, commandTimeoutMs: 60_000 });
  const other = clientOf(redis);
  await other.ping(); // a busy server refuses the commands that prepare a connection
  clientOf(redis)
    .eval('while true do end', 0)
    .catch(() => {});
  await until(
    () =>
      other.get('x').then(
        () => false,
        (error: Error) => error.message.startsWith('BUSY'),
      ),
    {
      what: 'the server is busy',
    },
  );
  const error = await locks.acquire('order:17').catch((caught: unknown) => caught);
  await other.script('KILL');
  expect(error).toBeInstanceOf(LockUnavailableError);
  expect((error as Error).message).toMatch(
    /BUSY .*A script or function runs too long on that server: find who runs it/,
  );
  expect((error as Error).message).not.toContain('can be reached');
});
