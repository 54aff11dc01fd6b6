import {
  Controller,
  Get,
  Injectable,
  Query,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
  type PipeTransform,
} from '@nestjs/common';
import { Locked } from 'nest-redis-lock';
import { defer, from, map, race, retry, tap, type Observable } from 'rxjs';
import { beforeEach, describe, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { HTTP_ADAPTERS, sharedApp, startApp, type TestApp } from '../support/nest-app.js';
import { proxyTo, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

/**
 * The gates of the handlers and the pipe, whether the pipe was reached, when the time is over, and the log of the
 * handlers.
 */
let gate: Gate;
let piped: Gate;
let reached: Gate;
let over: Gate;
let done: string[];
beforeEach(() => {
  gate = new Gate();
  piped = new Gate();
  reached = new Gate();
  over = new Gate();
  done = [];
});

/** Fails when the test says that the time is over. */
function inTime(handled: Observable<unknown>): Observable<unknown> {
  const late = from(over.opened).pipe(
    map(() => {
      throw new Error('The time is over.');
    }),
  );
  return race(handled, late);
}

@Injectable()
class TimesOut implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return inTime(next.handle());
  }
}

@Injectable()
class RetriesAfterTimeout implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    // Only the first try has a limit.
    let tries = 0;
    return defer(() => (++tries === 1 ? inTime(next.handle()) : next.handle())).pipe(retry(1));
  }
}

/** Like an interceptor that commits a transaction when the handler is done. */
@Injectable()
class Commits implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(tap(() => done.push('committed')));
  }
}

class SlowPipe implements PipeTransform {
  async transform(value: unknown): Promise<unknown> {
    reached.open();
    await piped.opened;
    return value;
  }
}

@Controller()
class Handlers {
  @Get('slow')
  @Locked('x')
  async slow(): Promise<string> {
    return this.work();
  }

  @Get('timeout-inside')
  @UseInterceptors(TimesOut)
  @Locked('x')
  async timeoutInside(): Promise<string> {
    return this.work();
  }

  @Get('timeout-before-handler')
  @UseInterceptors(TimesOut)
  @Locked('x')
  async timeoutBeforeHandler(@Query('id', SlowPipe) _id: string): Promise<string> {
    return this.work();
  }

  @Get('piped')
  @Locked('x')
  async piped(@Query('id', SlowPipe) _id: string): Promise<string> {
    return this.work();
  }

  @Get('committed')
  @UseInterceptors(Commits)
  @Locked('x')
  async committed(): Promise<string> {
    return this.work();
  }

  async work(): Promise<string> {
    done.push('began');
    await gate.opened;
    done.push('ended');
    return 'worked';
  }
}

@Controller('outside')
@UseInterceptors(TimesOut)
class TimeoutOutside extends Handlers {}

@Controller('retried')
@UseInterceptors(RetriesAfterTimeout)
class Retried extends Handlers {}

const free = ({ locks }: TestApp) => until(async () => !(await locks.isLocked('x')), { what: 'the lock is free' });
const waits = ({ locks }: TestApp, count: number) =>
  until(async () => (await locks.inspect('x'))?.waiters === count, { what: `${count} wait` });

/** Lets the handler end once another call, which gets the lock next, waits for it. */
async function endWhileNextWaits(test: TestApp): Promise<void> {
  const next = test.locks.withLock('x', () => done.push('next'));
  await waits(test, 1);
  gate.open();
  await next;
}

/** The answer of a path whose time is over as soon as that has happened. */
async function statusOf({ url }: TestApp, path: string, happened: Promise<unknown>): Promise<number> {
  const response = fetch(`${url}/${path}`);
  await happened;
  over.open();
  return (await response).status;
}

const begins = () => until(() => done.includes('began'), { what: 'the handler begins' });

describe.each(HTTP_ADAPTERS)('on %s', (_name, makeAdapter) => {
  /** Waiting calls wait for longer than the tests take. */
  const lock = { memory: true, waitMs: 60_000 } as const;
  const test = sharedApp({ controllers: [Handlers, TimeoutOutside, Retried] }, lock, undefined, makeAdapter());

  it.each([
    ['timeout-inside', ['began', 'ended', 'next']],
    ['outside/slow', ['began', 'ended', 'next']],
    ['outside/committed', ['began', 'ended', 'committed', 'next']],
  ])(
    'when a timeout answers while the handler still runs, the lock stays until it is done, and has committed: %s',
    async (path, all) => {
      expect(await statusOf(test, path, begins())).toBe(500);
      expect([await test.locks.isLocked('x'), done]).toEqual([true, ['began']]);
      await endWhileNextWaits(test);
      expect(done).toEqual(all);
    },
  );

  it('a second try after a timeout waits until the first is done [G190]', async () => {
    const response = fetch(`${test.url}/retried/slow`);
    await begins();
    over.open();
    await waits(test, 1);
    expect(done).toEqual(['began']);
    gate.open();
    expect(await (await response).text()).toBe('worked');
    expect(done).toEqual(['began', 'ended', 'began', 'ended']);
  });

  it('a timeout before the handler gives the lock back, and the handler never runs', async () => {
    expect(await statusOf(test, 'outside/piped', reached.opened)).toBe(500);
    piped.open();
    await free(test);
    await new Promise(setImmediate); // the call that waited for the pipe has gone on
    expect(done).toEqual([]);
  });
});

it('a handler that is reached while its lock is being given back does not run', async () => {
  const redis = await redisServer();
  const proxy = await proxyTo(redis);
  const test = await startApp({ controllers: [Handlers] }, { redis: proxy.url, commandTimeoutMs: 20_000 });
  const response = fetch(`${test.url}/timeout-before-handler`);
  await reached.opened;
  proxy.hold(); // the release takes as long as this lasts
  over.open();
  await new Promise(setImmediate);
  piped.open();
  await new Promise(setImmediate);
  proxy.release();
  expect((await response).status).toBe(500);
  expect(done).toEqual([]);
  expect(await redis.keys('lock:{x}')).toEqual([]);
});
