import 'reflect-metadata';
import assert from 'node:assert/strict';
import {
  Controller,
  HttpCode,
  Injectable,
  Module,
  Param,
  Post,
  UseInterceptors,
  type CanActivate,
  type ExecutionContext,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { HealthCheckService, TerminusModule, type HealthCheckResult } from '@nestjs/terminus';
import { INVALID_SPAN_CONTEXT, trace, type Tracer } from '@opentelemetry/api';
import { Redis } from 'ioredis';
import { InjectLockService, Locked, LockedInterceptor, LockService, RedisLockModule, type Lock } from 'nest-redis-lock';
import { otelLocks } from 'nest-redis-lock/otel';
import { LocksPageModule } from 'nest-redis-lock/page';
import { LockedCron } from 'nest-redis-lock/schedule';
import { LockHealthIndicator } from 'nest-redis-lock/terminus';
import { LockBench, withMemoryLocks } from 'nest-redis-lock/testing';

// The application that tests the packed library: it is compiled and started once for each combination of versions.

const redisUrl = process.env.REDIS_URL;
assert(redisUrl, 'REDIS_URL must be set');

/** The names of the spans that have begun. */
const spans: string[] = [];
const tracer = {
  startSpan(name: string) {
    spans.push(name);
    return trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
  },
};
const telemetry = otelLocks({ tracerProvider: { getTracer: () => tracer as unknown as Tracer } });

@Injectable()
class Orders {
  running = 0;
  mostRunning = 0;
  readonly nights: string[] = [];

  constructor(@InjectLockService() private readonly locks: LockService) {}

  @Locked('order:{0}')
  async pay(id: string): Promise<number> {
    this.mostRunning = Math.max(this.mostRunning, ++this.running);
    const lock: Lock = this.locks.current(`order:${id}`);
    await lock.extend();
    lock.assertHeld();
    this.running--;
    return lock.fencingToken;
  }

  @Locked((order: { sku: string }) => `stock:${order.sku}`, { waitMs: 0, onContended: 'skip' })
  async reserve(order: { sku: string }): Promise<string | undefined> {
    return order.sku;
  }

  @Locked(['account:{0}', 'account:{1}'])
  async transfer(from: string, to: string): Promise<boolean> {
    return [from, to].every((id) => this.locks.current(`account:${id}`).isHeld);
  }

  @LockedCron('0 0 1 1 *', 'nightly', { holdMs: 50, name: 'nightly' })
  async nightly(): Promise<void> {
    this.nights.push(this.locks.current().key);
  }

  // @ts-expect-error A method that returns a plain value must not compile.
  @Locked('plain')
  plain(): string[] | undefined {
    return undefined;
  }
}

@Controller('orders')
@UseInterceptors(LockedInterceptor)
class OrdersController {
  constructor(
    private readonly orders: Orders,
    private readonly locks: LockService,
  ) {}

  @Post(':id/pay')
  @HttpCode(202)
  @Locked('request:{params.id}', { waitMs: 0 })
  async pay(@Param('id') id: string): Promise<{ held: boolean; token: number }> {
    return { held: this.locks.current(`request:${id}`).isHeld, token: await this.orders.pay(id) };
  }
}

@Injectable()
class AdminGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    return context.switchToHttp().getRequest<{ headers: Record<string, string> }>().headers['x-role'] === 'admin';
  }
}

@Module({
  imports: [
    TerminusModule,
    LocksPageModule.register({ path: 'locks', guards: [AdminGuard] }),
    ScheduleModule.forRoot(),
    RedisLockModule.forRoot({ redis: redisUrl, telemetry }),
  ],
  providers: [Orders, LockHealthIndicator],
  controllers: [OrdersController],
})
class AppModule {}

async function main(): Promise<void> {
  const app = await NestFactory.create(AppModule, { logger: false });
  await app.listen(0, '127.0.0.1');
  const url = `${await app.getUrl()}/orders`;
  const locks = app.get(LockService);
  const orders = app.get(Orders);
  const redis = new Redis(redisUrl!);

  const tokens = await Promise.all(['7', '7', '7'].map((id) => orders.pay(id)));
  assert.equal(orders.mostRunning, 1, 'one call of a key at a time');
  assert(tokens[0]! < tokens[1]! && tokens[1]! < tokens[2]!, `fencing tokens must grow: ${tokens.join(', ')}`);
  assert.equal(await redis.exists('lock:{order:7}'), 0, 'the lock is given back');

  const paid = await answerOf(`${url}/8/pay`);
  assert.equal(paid.status, 202, `@HttpCode stays: ${paid.body}`);
  assert.equal((JSON.parse(paid.body) as { held: boolean }).held, true, 'LockedInterceptor took the lock');

  const held = await locks.acquire('request:9');
  const refused = await answerOf(`${url}/9/pay`);
  assert.deepEqual([refused.status, JSON.parse(refused.body)], [409, { statusCode: 409, message: 'Conflict' }]);
  assert.equal(await held.release(), true);

  const nails = await locks.acquire('stock:nails');
  assert.equal(await orders.reserve({ sku: 'nails' }), undefined, 'a contended call is skipped');
  await nails.release();
  assert.equal(await orders.reserve({ sku: 'nails' }), 'nails');

  assert.equal(await orders.transfer('b', 'a'), true, 'both locks are held');

  assert(spans.includes('acquire order:{0}') && spans.includes('hold order:{0}'), `spans: ${spans.join(', ')}`);

  app.get(SchedulerRegistry).getCronJob('nightly'); // is scheduled
  await orders.nightly();
  assert.deepEqual(orders.nights, ['nightly'], 'the cron job runs under its lock');

  const locksAreUp = () => app.get(LockHealthIndicator).pingCheck('locks');
  const { status, details }: HealthCheckResult = await app.get(HealthCheckService).check([locksAreUp]);
  assert.deepEqual([status, details], ['ok', { locks: { status: 'up', nodes: { voting: 1, of: 1 } } }]);

  const watched = await locks.acquire('watched');
  const page = `${await app.getUrl()}/locks`;
  assert.equal((await fetch(page)).status, 403, 'the page is guarded');
  const events = await fetch(`${page}/events`, { headers: { 'x-role': 'admin' } });
  const stream = events.body!.pipeThrough(new TextDecoderStream()).getReader();
  let shown = '';
  while (!shown.includes('"watched"')) shown += (await stream.read()).value ?? '';
  await watched.release();

  const bench = new LockBench();
  await withMemoryLocks(new Orders(bench.locks), bench).pay('9');
  assert.deepEqual(
    bench.journal.map(({ event, key }) => `${event} ${key}`),
    ['acquired order:9', 'released order:9'],
  );

  redis.disconnect();
  await app.close();
  setTimeout(() => {
    console.error('The process did not end after app.close():', process.getActiveResourcesInfo());
    process.exit(1);
  }, 15_000).unref();
}

async function answerOf(url: string): Promise<{ status: number; body: string }> {
  const response = await fetch(url, { method: 'POST' });
  return { status: response.status, body: await response.text() };
}

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
