import { ConsoleLogger, Controller, Get, Param } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Locked, LockService, RedisLockModule } from 'nest-redis-lock';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { makeApp, type LockOptions } from '../support/nest-app.js';
import { printedLines } from '../support/printed-lines.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

@Controller()
class Orders {
  @Get('static')
  @Locked('order', { waitMs: 0 })
  async byStatic(): Promise<string> {
    return 'ordered';
  }

  @Get('argument/:id')
  @Locked('order:{0}', { waitMs: 0 })
  async byArgument(@Param('id') id: string): Promise<string> {
    return id;
  }

  @Get('request/:id')
  @Locked('order:{params.id}', { waitMs: 0 })
  async byRequest(): Promise<string> {
    return 'ordered';
  }
}

describe('what the logger of Nest prints', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  async function startPrinting(lock: LockOptions) {
    const testing = await Test.createTestingModule({
      imports: [RedisLockModule.forRoot(lock)],
      controllers: [Orders],
    })
      .setLogger(new ConsoleLogger({ colors: false, logLevels: ['debug', 'warn', 'error'] }))
      .compile();
    const app = testing.createNestApplication();
    const lines = printedLines();
    await app.listen(0, '127.0.0.1');
    onTestFinished(() => app.close());
    return { url: await app.getUrl(), locks: app.get(LockService), lines };
  }

  it('an outage is one line in the log for each of 20 refused calls, and one that says what is wrong [G194]', async () => {
    const redis = await redisServer();
    const { url, lines } = await startPrinting({ redis: redis.url, commandTimeoutMs: 200 });
    await redis.kill();
    lines.length = 0;
    const responses = await Promise.all(Array.from({ length: 20 }, () => fetch(`${url}/static`)));
    vi.restoreAllMocks();
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([503]));
    expect(lines).toHaveLength(21);
    expect(lines.filter((line) => line.includes('WARN'))).toEqual([
      expect.stringMatching(
        `WARN \\[LockService\\] Locks are unavailable: 127\\.0\\.0\\.1:${redis.port}: .+\\. Check that 127\\.0\\.0\\.1:${redis.port} can be reached\\.`,
      ),
    ]);
    const refusal =
      'ERROR \\[ExceptionsHandler\\] LockUnavailableError: Orders\\.byStatic: Lock "order" could not be acq';
    expect(lines.filter((line) => new RegExp(refusal).test(line))).toHaveLength(20);
  });

  it.each([
    ['static', 'Orders.byStatic: Lock "order"'],
    ['argument/1', 'Orders.byArgument: Lock "order:1"'],
    ['request/1', 'Orders.byRequest: Lock "order:1"'],
  ])('a contended lock is one line in the log, which begins with the method: %s [G193]', async (path, begin) => {
    const { url, locks, lines } = await startPrinting({ memory: true });
    await using _one = await locks.acquire('order');
    await using _two = await locks.acquire('order:1');
    await fetch(`${url}/${path}`);
    vi.restoreAllMocks();
    expect(lines).toEqual([expect.stringContaining(`LockContendedError: ${begin} is held by pid ${process.pid}`)]);
  });
});

it('an outage is not logged as over while a server answers but refuses to write [G196]', async () => {
  const redis = await redisServer('--appendonly', 'yes');
  const { locks, log } = await makeApp({}, { redis: redis.url, commandTimeoutMs: 20_000 });
  await redis.command('CONFIG', 'SET', 'min-replicas-to-write', '1');
  await expect(locks.acquire('a')).rejects.toThrow('could not be acquired');
  const { evalsha = 0 } = await redis.calls();
  await until(async () => (await redis.calls()).evalsha! >= evalsha + 3, { what: 'it was tried some times' });
  expect(log.lines.filter((line) => line.includes('available'))).toEqual([
    expect.stringMatching('^warn Locks are unavailable: 127.*NOREPLICAS'),
  ]);
  await redis.command('CONFIG', 'SET', 'min-replicas-to-write', '0');
  await until(() => log.lines.some((line) => line.includes('Locks are available again')), { what: 'they are again' });
});
