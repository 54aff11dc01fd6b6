import {
  Controller,
  Get,
  Query,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
  type PipeTransform,
} from '@nestjs/common';
import { Locked } from 'nest-redis-lock';
import { from, map, race, type Observable } from 'rxjs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { startApp } from '../support/nest-app.js';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';

const reached = new Gate();
const piped = new Gate();
const expired = new Gate();

class TimesOut implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const expiry = from(expired.opened).pipe(
      map(() => {
        throw new Error('timed out');
      }),
    );
    return race(next.handle(), expiry);
  }
}

class SlowPipe implements PipeTransform {
  async transform(value: unknown): Promise<unknown> {
    reached.open();
    await piped.opened;
    return value;
  }
}

let ran = false;

@Controller()
class Orders {
  @Get()
  @UseInterceptors(TimesOut)
  @Locked('order')
  async run(@Query('id', SlowPipe) _id: string): Promise<void> {
    ran = true;
  }
}

let redis: RedisServer;
let proxy: TcpProxy;
beforeAll(async () => {
  redis = await RedisServer.start();
  proxy = await TcpProxy.start(redis.port);
});
afterAll(async () => {
  await proxy.stop();
  await redis.stop();
});

it('does not run a handler that is reached while its lock is being given back', async () => {
  const { url } = await startApp({ controllers: [Orders] }, { redis: proxy.url, commandTimeoutMs: 20_000 });
  const response = fetch(url);
  await reached.opened;
  proxy.hold(); // the release is on its way for as long as this lasts
  expired.open();
  await new Promise(setImmediate);
  piped.open();
  await new Promise(setImmediate);
  proxy.release();
  expect((await response).status).toBe(500);
  expect(ran).toBe(false);
  expect(await redis.keys('lock:{order}')).toEqual([]);
});
