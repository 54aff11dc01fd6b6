import { Injectable, ServiceUnavailableException, type OnModuleDestroy } from '@nestjs/common';
import { ModuleRef, type NestApplicationContext } from '@nestjs/core';
import { HealthCheckService, HealthIndicatorService, TerminusModule, type HealthCheckResult } from '@nestjs/terminus';
import { getLockServiceToken, RedisLockModule, type LockService } from 'nest-redis-lock';
import { LockHealthIndicator, type LockPingCheckOptions } from 'nest-redis-lock/terminus';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { openApp, type TestApp } from '../support/nest-app.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

/** How long Terminus keeps a closing application open, in milliseconds. */
const GRACE_MS = 1_500;

@Injectable()
class Health {
  constructor(
    private readonly health: HealthCheckService,
    private readonly locks: LockHealthIndicator,
  ) {}

  /** The answer of a controller over HTTP. */
  async ready(): Promise<{ code: number; body: HealthCheckResult }> {
    const checks = [() => this.locks.pingCheck('one'), () => this.locks.pingCheck('three', { registration: 'three' })];
    try {
      return { code: 200, body: await this.health.check(checks) };
    } catch (error) {
      if (!(error instanceof ServiceUnavailableException)) throw error;
      return { code: error.getStatus(), body: error.getResponse() as HealthCheckResult };
    }
  }
}

/** Keeps the application in its first hook of closing until the gate opens. */
@Injectable()
class SlowToClose implements OnModuleDestroy {
  readonly gate = new Gate();

  async onModuleDestroy(): Promise<void> {
    await this.gate.opened;
  }
}

/** What Terminus 11 provides: results with only two statuses. */
const ELEVEN = {
  check: (key: string) => ({
    up: (data: object) => ({ [key]: { ...data, status: 'up' } }),
    down: (data: object) => ({ [key]: { ...data, status: 'down' } }),
  }),
} as unknown as HealthIndicatorService;

/** The nodes of one registration; the only Redis of the other one is the first of them, behind a proxy. */
let nodes: RedlockNodes;
let proxy: TcpProxy;
let made: TestApp;
let indicator: LockHealthIndicator;
let ofEleven: LockHealthIndicator;
let closed = false;

beforeAll(async () => {
  nodes = await RedlockNodes.start(3);
  proxy = await TcpProxy.start(nodes.servers[0]!.port);
  made = await openApp(
    {
      imports: [
        TerminusModule.forRoot({ logger: false, gracefulShutdownTimeoutMs: GRACE_MS }),
        RedisLockModule.forRoot({ name: 'three', redlock: nodes.urls }),
      ],
      providers: [LockHealthIndicator, Health, SlowToClose],
    },
    { redis: proxy.url, commandTimeoutMs: 200 },
  );
  indicator = made.app.get(LockHealthIndicator);
  ofEleven = new LockHealthIndicator(ELEVEN, made.app.get(ModuleRef));
});
beforeEach(async () => {
  nodes.resume();
  await proxy.accept();
  for (const registration of ['default', 'three']) await is('up', { registration });
});
afterAll(async () => {
  nodes.resume();
  if (!closed) made.app.get(SlowToClose).gate.open();
  await made.app.close();
  await proxy.stop();
  await nodes.stop();
});

/** The result of the check, once it has this status. */
const is = (status: string, options?: LockPingCheckOptions, check = indicator) =>
  until(
    async () => {
      const { locks } = await check.pingCheck('locks', options);
      return locks.status === status ? locks : undefined;
    },
    { what: `the check is ${status}` },
  );

const ready = () => made.app.get(Health).ready();

it('an application whose Redis is gone is not ready, and no address is shown unless details are requested [G445]', async () => {
  proxy.refuse();
  proxy.cut();
  const down = { status: 'down', message: 'no lock can be taken', nodes: { voting: 0, of: 1 } };
  expect(await is('down')).toEqual(down);
  expect(await is('down', { details: true })).toEqual({
    ...down,
    problems: [expect.stringContaining(`127.0.0.1:${proxy.port}: not connected`)],
  });
  expect(await is('down', {}, ofEleven)).toEqual(down);
  expect(await ready()).toMatchObject({ code: 503, body: { status: 'error', error: { one: down } } });
});

it('a Redlock that lacks an unneeded node is degraded, and up with a warning in Terminus 11 [Nest 12] [G446]', async () => {
  nodes.pause(2);
  const impaired = { nodes: { voting: 2, of: 3 }, warnings: ['1 of 3 nodes cannot vote'] };
  expect(await is('degraded', { registration: 'three' })).toEqual({ status: 'degraded', ...impaired });
  expect(await is('up', { registration: 'three' }, ofEleven)).toEqual({ status: 'up', ...impaired });
  const { code, body } = await ready();
  expect([code, body.status, body.details.three]).toEqual([200, 'degraded', { status: 'degraded', ...impaired }]);
  nodes.pause(1);
  const down = { status: 'down', message: 'no lock can be taken', nodes: { voting: 1, of: 3 } };
  for (const each of [indicator, ofEleven]) expect(await is('down', { registration: 'three' }, each)).toEqual(down);
});

it('a check that takes longer than its time limit reports down, and so does a check with wrong options', async () => {
  proxy.hold();
  expect(await is('down', { timeoutMs: 20 })).toEqual({ status: 'down', message: 'no answer within 20 ms' });
  proxy.release();
  const { locks } = await indicator.pingCheck('locks', { registration: 'unknown' });
  expect(locks).toEqual({ status: 'down', message: expect.stringContaining('LockService(unknown)') });
  const { locks: odd } = await indicator.pingCheck('locks', { timeoutMs: -1 });
  expect(odd).toEqual({ status: 'down', message: expect.stringContaining('timeoutMs') });
});

it('an application is not ready from the moment that lock.closing aborts, but grants free locks while Terminus waits [G444]', async () => {
  const { app, locks } = made;
  const lock = await locks.acquire('held');
  const atOnce = new Promise((resolve) => {
    lock.closing.addEventListener('abort', () => resolve(indicator.pingCheck('locks')));
  });
  const over = (app as unknown as NestApplicationContext).close('SIGTERM'); // as enableShutdownHooks() does
  closed = true;
  const closing = { status: 'down', message: 'the application is closing', nodes: { voting: 1, of: 1 } };
  expect(await atOnce).toEqual({ locks: closing });
  // Terminus itself does not report it yet.
  expect(await ready()).toMatchObject({ code: 503, body: { status: 'error', error: { one: closing } } });

  app.get(SlowToClose).gate.open();
  const { code, body } = await until(
    async () => {
      const answer = await ready();
      return answer.body.status === 'shutting_down' ? answer : undefined;
    },
    { what: 'Terminus waits' },
  );
  expect([code, body.error!.one]).toEqual([503, closing]);
  const three = app.get<LockService>(getLockServiceToken('three'));
  expect(await three.withLock('free', () => 'granted')).toBe('granted');
  expect(await locks.withLock('free', () => 'granted')).toBe('granted');
  await lock.release();
  await over;
});
