import {
  Body,
  Controller,
  ForbiddenException,
  Get,
  HttpCode,
  Injectable,
  Param,
  Post,
  Req,
  UseGuards,
  ValidationPipe,
  type CanActivate,
  type ExecutionContext,
  type INestApplication,
} from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { IsString } from 'class-validator';
import { fromContext, Locked } from 'nest-redis-lock';
import { beforeEach, describe, expect, it } from 'vitest';
import { HTTP_ADAPTERS, post, sharedApp, startApp } from '../support/nest-app.js';
import { PayOrder, type Receipt } from '../support/pay-order.js';
import { RedisServer } from '../support/redis-server.js';

class Order {
  @IsString() id!: string;
}

@Injectable()
class Denies implements CanActivate {
  canActivate(): boolean {
    return false;
  }
}

@Injectable()
class SetsUser implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    context.switchToHttp().getRequest().user = { id: 'ada', tenant: { id: 7 } };
    return true;
  }
}

@Controller()
class Orders {
  ran = 0;

  @Post('denied')
  @UseGuards(Denies)
  @Locked('denied')
  async denied(): Promise<void> {
    this.ran++;
  }

  @Post('by-argument')
  @Locked('order:{0.id}')
  async byArgument(@Body(ValidationPipe) order: Order): Promise<string> {
    this.ran++;
    return order.id;
  }

  @Post('static')
  @Locked('secret-key', { waitMs: 0 })
  async static(): Promise<string> {
    this.ran++;
    return 'done';
  }

  @Get('params/:a/:b')
  @Locked('{params.a}:{params.b}')
  async params(@Param('a') _a: string): Promise<void> {
    this.ran++;
  }

  @Post('body')
  @Locked('{body.order.lines.0.sku}')
  async body(): Promise<void> {
    this.ran++;
  }

  @Get('query')
  @Locked('{query.id}')
  async query(): Promise<void> {
    this.ran++;
  }

  @Get('headers')
  @Locked('{headers.X-Tenant}')
  async headers(): Promise<void> {
    this.ran++;
  }

  @Get('user')
  @UseGuards(SetsUser)
  @Locked('{user.id}:{user.tenant.id}')
  async user(): Promise<void> {
    this.ran++;
  }

  @Get('context/:id')
  @UseGuards(SetsUser)
  @Locked(
    fromContext((context) => {
      const { user, params } = context.switchToHttp().getRequest();
      if (params.id === 'none') throw new ForbiddenException('in the key function');
      return params.id === 'empty'
        ? ''
        : `${context.getClass().name}.${context.getHandler().name}:${user.id}:${params.id}`;
    }),
  )
  async context(@Req() _request: object): Promise<void> {
    this.ran++;
  }

  @Get('data/:id')
  @Locked('{data.url}')
  async data(): Promise<void> {
    this.ran++;
  }
}

/** By default, Express and Fastify treat `id[x]` as a name. */
function readNestedQueries(app: INestApplication): void {
  const adapter = app.getHttpAdapter();
  if (adapter instanceof ExpressAdapter) adapter.set('query parser', 'extended');
}

describe.each(HTTP_ADAPTERS)('on %s', (_name, makeAdapter) => {
  const test = sharedApp({ controllers: [Orders] }, { memory: true }, readNestedQueries, makeAdapter());
  beforeEach(() => void (test.app.get(Orders).ran = 0));

  it('a guard that denies is answered with 403, and no lock is taken [G182]', async () => {
    const { url, acquired } = test;
    expect((await post(`${url}/denied`, {})).status).toBe(403);
    expect(acquired).toEqual([]);
  });

  it('no lock whose key uses arguments is taken when the body is invalid [G183]', async () => {
    const { url, acquired } = test;
    expect((await post(`${url}/by-argument`, { id: 5 })).status).toBe(400);
    expect(acquired).toEqual([]);
    expect((await post(`${url}/by-argument`, { id: 'a' })).status).toBe(201);
    expect(acquired).toEqual(['order:a']);
  });

  it('a held lock is answered with 409, which names neither key nor holder to the client, while the log does [G184]', async () => {
    const { app, url, locks, log } = test;
    await using _held = await locks.acquire('secret-key');
    const response = await post(`${url}/static`, {});
    expect([response.status, await response.json()]).toEqual([409, { statusCode: 409, message: 'Conflict' }]);
    expect(app.get(Orders).ran).toBe(0);
    expect(log.lines.join()).toContain(`Lock "secret-key" is held by pid ${process.pid}`);
  });

  it('a missing Redis is answered with 503, which names no node to the client, while the log does [G185]', async () => {
    const redis = await RedisServer.start();
    const lock = { redis: redis.url, commandTimeoutMs: 200 };
    const starting = startApp({ controllers: [Orders] }, lock, undefined, makeAdapter());
    const { app, url, log } = await starting.finally(() => redis.stop());
    const response = await post(`${url}/static`, {});
    expect([response.status, await response.json()]).toEqual([
      503,
      { statusCode: 503, message: 'Service Unavailable' },
    ]);
    expect(app.get(Orders).ran).toBe(0);
    expect(log.lines.join()).toContain(`127.0.0.1:${redis.port}`);
  });

  it('a key is made from parameters, a query, a header in any letter case, the user of a guard, the context, and a path in the body', async () => {
    const { url, acquired } = test;
    const made = [
      ['params/x:y/z', 'x%3Ay:z'],
      ['params/x/y:z', 'x:y%3Az'],
      ['query?id=q', 'q'],
      ['headers', 'acme'],
      ['user', 'ada:7'],
      ['context/5', 'Orders.context:ada:5'],
    ];
    for (const [path] of made)
      expect((await fetch(`${url}/${path}`, { headers: { 'x-TENANT': 'acme' } })).status).toBe(200);
    expect((await post(`${url}/body`, { order: { lines: [{ sku: 12 }] } })).status).toBe(201);
    expect(acquired).toEqual([...made.map(([, key]) => key), '12']);
  });

  it.each([
    ['a query parameter is empty', 'query?id='],
    ['a query parameter is given twice', 'query?id=1&id=2'],
    ['a query parameter is an object', 'query?id[toString]=x'],
    ['a query parameter makes the key too long', `query?id=${'x'.repeat(1025)}`],
    ['a header is missing', 'headers'],
    ['the key function returns nothing', 'context/empty'],
    ['the key function throws', 'context/none'],
    ['there is no message', 'data/1'],
  ])('answers 400 without running the handler when %s', async (_what, path) => {
    const { app, url, acquired } = test;
    const response = await fetch(`${url}/${path}`);
    expect([response.status, await response.json()]).toEqual([400, { statusCode: 400, message: 'Bad Request' }]);
    expect([app.get(Orders).ran, acquired]).toEqual([0, []]);
  });

  it('a handler that is called directly, without its request, does not run [G186]', async () => {
    const { app, acquired } = test;
    await expect(app.get(Orders).params('1')).rejects.toThrow(
      'Orders.params was called without LockedInterceptor, which takes a lock whose key is made from the request',
    );
    expect([app.get(Orders).ran, acquired]).toEqual([0, []]);
  });
});

@Controller()
class Payments {
  ran = 0;

  @Post('arguments/:id')
  @HttpCode(200)
  @Locked('order:{0}')
  async ofArguments(@Param('id') _id: string, @Body() order: PayOrder): Promise<Receipt> {
    return this.pay(order);
  }

  @Post('function/:id')
  @HttpCode(200)
  @Locked((id, order) => `order:${id}:${order.amount}`)
  async ofFunction(@Param('id') _id: string, @Body() order: PayOrder): Promise<Receipt> {
    return this.pay(order);
  }

  @Post('request/:id')
  @HttpCode(200)
  @Locked('order:{params.id}')
  async ofRequest(@Param('id') _id: string, @Body() order: PayOrder): Promise<Receipt> {
    return this.pay(order);
  }

  @HttpCode(200)
  @Locked(fromContext(() => 'orders'))
  @Post('context/:id')
  async ofContext(@Param('id') _id: string, @Body() order: PayOrder): Promise<Receipt> {
    return this.pay(order);
  }

  private pay(order: PayOrder): Receipt {
    this.ran++;
    return { paid: order.amount };
  }
}

it('a ValidationPipe checks the class of a body under @Locked, whatever its key is made from [G204]', async () => {
  const { app, url } = await startApp({ controllers: [Payments] }, undefined, (made) =>
    made.useGlobalPipes(new ValidationPipe()),
  );
  for (const kind of ['arguments', 'function', 'request', 'context']) {
    const refused = await post(`${url}/${kind}/17`, { amount: 'all of it' });
    expect([refused.status, await refused.json()]).toMatchObject([400, { message: [expect.stringMatching('amount')] }]);
    expect(app.get(Payments).ran).toBe(0);
    const paid = await post(`${url}/${kind}/17`, { amount: 5 });
    expect([paid.status, await paid.json()]).toEqual([200, { paid: 5 }]);
    app.get(Payments).ran = 0;
  }
});
