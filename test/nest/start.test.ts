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
