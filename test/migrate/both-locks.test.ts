import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { Locked, lockKey, RedisLockModule } from 'nest-redis-lock';
import { expect, it } from 'vitest';
import { examplesOf, generate } from '../readme/compile.js';
import { startModules } from '../support/nest-app.js';
import { clientOf, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

type Run<Key extends unknown[] = [key: string]> = (...args: [...Key, work: () => Promise<void>]) => Promise<void>;
type RunBoth = Run<[oldKey: string, key: string]>;

/** The release after the move. */
class Orders {
  @Locked('order:{0}')
  async run(_id: string, work: () => Promise<void>): Promise<void> {
    await work();
  }
}

const RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end`;

/** What the libraries of the pages do on one Redis: they set a key if it is free, and retry after a pause. */
function oldLockOn(client: Redis): Run {
  let calls = 0;
  return async (key, work) => {
    const owner = `${process.pid}/${calls++}`;
    while ((await client.set(key, owner, 'PX', 60_000, 'NX')) !== 'OK') await sleep(2);
    try {
      await work();
    } finally {
      await client.eval(RELEASE, 1, key, owner);
    }
  };
}

it('a release that takes both locks excludes the one before it and the one after it, whatever the id contains', async () => {
  const server = await redisServer();
  const old = oldLockOn(clientOf(server));
  const module = generate('both-locks.ts', examplesOf('docs/migrate.md')[0]!);
  const { BothLocks } = (await import(/* @vite-ignore */ module)) as { BothLocks: new () => { run: RunBoth } };
  const testing = await startModules({
    imports: [RedisLockModule.forRoot({ redis: server.url })],
    providers: [BothLocks, Orders, { provide: 'OLD_LOCK', useValue: old }],
  });
  const before: Run = (id, work) => old(`order:${id}`, work);
  const both: Run = (id, work) => testing.get(BothLocks).run(`order:${id}`, lockKey`order:${id}`, work);
  const after: Run = (id, work) => testing.get(Orders).run(id, work);

  /** The largest number of simultaneous runs when both releases do ten each. */
  const together = async (id: string, ...releases: Run[]) => {
    let [inside, most] = [0, 0];
    const work = async () => {
      most = Math.max(most, ++inside);
      await sleep(3);
      inside--;
    };
    await Promise.all(
      releases.map(async (run) => {
        for (let turn = 0; turn < 10; turn++) await run(id, work);
      }),
    );
    return most;
  };
  for (const id of ['7', '5:7', '50%', '{7}']) {
    expect(await together(id, before, both)).toBe(1);
    expect(await together(id, both, both)).toBe(1);
    expect(await together(id, both, after)).toBe(1);
  }

  let inside = 0;
  const meet = async () => {
    inside++;
    await until(() => inside === 2, { what: 'both works run' });
  };
  await Promise.all([before('8', meet), after('8', meet)]);
});
