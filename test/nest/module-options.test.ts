import { type DynamicModule } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { RedisLockModule } from 'nest-redis-lock';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { letVote } from '../support/let-vote.js';
import { RecordingLogger } from '../support/nest-app.js';
import { RedisServer } from '../support/redis-server.js';

async function start(registration: () => DynamicModule, log = new RecordingLogger()): Promise<RecordingLogger> {
  const app = await Test.createTestingModule({ imports: [registration()] })
    .setLogger(log)
    .compile();
  onTestFinished(() => app.close());
  await app.init();
  return log;
}

it.each<[object | undefined, string]>([
  [undefined, 'the argument of RedisLockModule.forRootAsync must be an object with options: got undefined.'],
  [{}, 'forRootAsync needs exactly one of useFactory, useClass, useExisting: got none of them.'],
  [
    { useFactory: () => ({}), useClass: class {} },
    'exactly one of useFactory, useClass, useExisting: got useFactory and useClass.',
  ],
  [{ redis: 'redis://a' }, 'RedisLockModule.forRootAsync has no option "redis": expected useFactory'],
])('does not take %o for forRootAsync', async (options, message) => {
  await expect(start(() => RedisLockModule.forRootAsync(options as never))).rejects.toThrow(message);
});

describe('with Redlock', () => {
  let servers: RedisServer[];
  beforeAll(async () => {
    servers = await letVote(await Promise.all([1, 2, 3, 4].map(() => RedisServer.start())));
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  it('warns of an even number of nodes', async () => {
    const redlock = servers.map((server) => server.url);
    const log = await start(() => RedisLockModule.forRoot({ redlock, lazyConnect: true }));
    expect(log.lines).toContain('warn redlock has 4 nodes, which tolerate no more failures than 3: use an odd number.');
  });
});
