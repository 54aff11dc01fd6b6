import { Test } from '@nestjs/testing';
import { LockUnavailableError, RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { expect, it, onTestFinished } from 'vitest';
import { RecordingLogger } from '../support/nest-app.js';
import { redisServers } from '../support/stage.js';

async function start(options: RedisLockModuleOptions): Promise<RecordingLogger> {
  const log = new RecordingLogger();
  const app = await Test.createTestingModule({ imports: [RedisLockModule.forRoot(options)] })
    .setLogger(log)
    .compile();
  onTestFinished(() => app.close());
  return log;
}

const failureOf = (options: RedisLockModuleOptions): Promise<unknown> =>
  start(options).catch((reason: unknown) => reason);

const urls = (servers: readonly { url: string }[]) => servers.map(({ url }) => url);
const nameOf = ({ port }: { port: number }) => `127.0.0.1:${port}`;

it('an application whose Redis is dead or hangs fails to start within its limit [G188]', async () => {
  const [dead, hung] = await redisServers(2);
  await dead!.kill();
  hung!.pause();
  for (const server of [dead!, hung!]) {
    const startedAt = performance.now();
    const error = await failureOf({ redis: server.url, connectTimeoutMs: 2_000 });
    expect(performance.now() - startedAt).toBeLessThan(4_000); // the default is 5 000
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toContain(nameOf(server));
  }
});

it('an application does not start when a majority of the Redlock nodes is gone, and its error names each', async () => {
  const servers = await redisServers(3);
  await Promise.all(servers.slice(0, 2).map((server) => server.kill()));
  const error = await failureOf({ redlock: urls(servers), connectTimeoutMs: 2_000 });
  expect(error).toBeInstanceOf(LockUnavailableError);
  expect(servers.map((server) => (error as Error).message.includes(nameOf(server)))).toEqual([true, true, false]);
});

it('an application warns of a Redlock node that it can do without, and of nothing when all three are there', async () => {
  const servers = await redisServers(3);
  expect((await start({ redlock: urls(servers) })).lines).toEqual([]);
  await servers[0]!.kill();
  const log = await start({ redlock: urls(servers), connectTimeoutMs: 2_000 });
  expect(log.lines).toEqual([
    expect.stringMatching(new RegExp(`^warn Locks of .*warning: ${nameOf(servers[0]!)} cannot be reached: `, 's')),
  ]);
});
