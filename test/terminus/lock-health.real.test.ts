import { Controller, Get } from '@nestjs/common';
import { HealthCheck, HealthCheckService, TerminusModule, type HealthCheckResult } from '@nestjs/terminus';
import { LockHealthIndicator } from 'nest-redis-lock/terminus';
import { expect, it } from 'vitest';
import { startApp } from '../support/nest-app.js';
import { redisServer } from '../support/stage.js';

@Controller()
class HealthController {
  constructor(
    private readonly health: HealthCheckService,
    private readonly locks: LockHealthIndicator,
  ) {}

  @Get('ready')
  @HealthCheck()
  ready(): Promise<HealthCheckResult> {
    return this.health.check([() => this.locks.pingCheck('locks', { timeoutMs: 20_000 })]);
  }
}

it('an application is ready by HTTP while its locks can be had, and not without its Redis', async () => {
  const redis = await redisServer();
  const imports = [TerminusModule.forRoot({ logger: false })];
  const parts = { imports, controllers: [HealthController], providers: [LockHealthIndicator] };
  const { url } = await startApp(parts, { redis: redis.url, commandTimeoutMs: 20_000 });
  const ready = await fetch(`${url}/ready`);
  const locks = { status: 'up', nodes: { voting: 1, of: 1 } };
  expect([ready.status, await ready.json()]).toMatchObject([200, { status: 'ok', details: { locks } }]);

  await redis.kill();
  const down = await fetch(`${url}/ready`);
  expect([down.status, await down.json()]).toMatchObject([
    503,
    { status: 'error', error: { locks: { status: 'down' } } },
  ]);
});
