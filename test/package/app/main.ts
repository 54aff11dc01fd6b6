import 'reflect-metadata';
import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import {
  ConsoleLogger,
  Controller,
  Get,
  HttpCode,
  Injectable,
  Module,
  Param,
  Post,
  UseInterceptors,
  type CanActivate,
  type ExecutionContext,
  type Type,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { HealthCheck, HealthCheckService, TerminusModule, type HealthCheckResult } from '@nestjs/terminus';
import { INVALID_SPAN_CONTEXT, trace, type Tracer } from '@opentelemetry/api';
import { Redis } from 'ioredis';
import {
  InjectLockService,
  Locked,
  LockContendedError,
  LockedInterceptor,
  LockService,
  LockUnavailableError,
  RedisLockModule,
  type Lock,
} from 'nest-redis-lock';
import { otelLocks } from 'nest-redis-lock/otel';
import { LocksPageModule } from 'nest-redis-lock/page';
import { LockedCron } from 'nest-redis-lock/schedule';
import { LockHealthIndicator } from 'nest-redis-lock/terminus';
import { LockBench, withMemoryLocks } from 'nest-redis-lock/testing';

// The application that tests the packed library: it is compiled and started once for each combination of versions.

const redisUrl = process.env.REDIS_URL;
assert(redisUrl, 'REDIS_URL must be set');
/** Nothing listens there. */
const DEAD_NODE = '127.0.0.1:1';

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

  constructor(
    private readonly locks: LockService,
    @InjectLockService('dead') readonly unreachable: LockService,
  ) {}

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

  @Locked('report:{0}', { registration: 'dead' })
  async report(id: string): Promise<string> {
    return id;
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

  @Post(':id/report')
  @Locked('request:{params.id}', { registration: 'dead' })
  async reportOfRequest(@Param('id') id: string): Promise<string> {
    return id;
  }

  @Post(':id/service-report')
  async report(@Param('id') id: string): Promise<string> {
    return this.orders.report(id);
  }
}

@Injectable()
class AdminGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    return context.switchToHttp().getRequest<{ headers: Record<string, string> }>().headers['x-role'] === 'admin';
  }
}

@Controller('health')
class HealthController {
  constructor(
    private readonly health: HealthCheckService,
    private readonly locks: LockHealthIndicator,
  ) {}

  @Get()
  @HealthCheck()
  async ready(): Promise<HealthCheckResult> {
    return this.health.check([() => this.locks.pingCheck('locks')]);
  }
}

@Module({
  imports: [
    TerminusModule,
    LocksPageModule.register({ path: 'locks', guards: [AdminGuard] }),
    ScheduleModule.forRoot(),
    RedisLockModule.forRoot({ redis: redisUrl, telemetry }),
    RedisLockModule.forRoot({ name: 'dead', redis: `redis://${DEAD_NODE}`, lazyConnect: true, commandTimeoutMs: 100 }),
  ],
  providers: [Orders, LockHealthIndicator],
  controllers: [OrdersController, HealthController],
})
class AppModule {}

/** Collects the errors that Nest reports, and prints nothing else. */
class RecordingLogger extends ConsoleLogger {
  readonly errors: unknown[] = [];

  override log(): void {}

  override error(message: unknown): void {
    this.errors.push(message);
  }

  reported(kind: Type<Error>, text: string): boolean {
    return this.errors.some((error) => error instanceof kind && error.message.includes(text));
  }
}

async function main(): Promise<void> {
  const logger = new RecordingLogger();
  const app = await NestFactory.create(AppModule, { logger });
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

  const held = await locks.acquire('request:secret');
  const refused = await answerOf(`${url}/secret/pay`);
  assert.deepEqual([refused.status, JSON.parse(refused.body)], [409, { statusCode: 409, message: 'Conflict' }]);
  keepsSecret(refused.body, ['secret', held.owner, hostname(), String(process.pid)]);
  assert(logger.reported(LockContendedError, 'request:secret'), 'the log names the key');
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

  const health = await fetch(`${await app.getUrl()}/health`);
  const { status, details } = (await health.json()) as HealthCheckResult;
  assert.deepEqual([status, details], ['ok', { locks: { status: 'up', nodes: { voting: 1, of: 1 } } }]);
  const { dead } = await app.get(LockHealthIndicator).pingCheck('dead', { registration: 'dead' });
  assert.deepEqual(dead, { status: 'down', message: 'no lock can be taken', nodes: { voting: 0, of: 1 } });

  const watched = await locks.acquire('watched');
  const page = `${await app.getUrl()}/locks`;
  assert.equal((await fetch(page)).status, 403, 'the page is guarded');
  const events = await fetch(`${page}/events`, { headers: { 'x-role': 'admin' } });
  const stream = events.body!.pipeThrough(new TextDecoderStream()).getReader();
  let shown = '';
  while (!shown.includes('"watched"')) shown += (await stream.read()).value ?? '';
  keepsSecret(shown, [watched.owner]);
  await watched.release();

  for (const path of ['secret/report', 'secret/service-report']) {
    const answer = await answerOf(`${url}/${path}`);
    const expected = { statusCode: 503, message: 'Service Unavailable' };
    assert.deepEqual([answer.status, JSON.parse(answer.body)], [503, expected]);
    keepsSecret(answer.body, ['secret', DEAD_NODE, '127.0.0.1']);
  }
  assert(logger.reported(LockUnavailableError, DEAD_NODE), 'the log names the node');

  const bench = new LockBench();
  await withMemoryLocks(new Orders(bench.locks, bench.locks), bench).pay('9');
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

function keepsSecret(body: string, secrets: string[]): void {
  for (const secret of secrets) assert(!body.includes(secret), `the answer must not tell ${secret}: ${body}`);
}

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
