import { Body, Controller, Get, Injectable, Param, Post, Put, UseGuards } from '@nestjs/common';
import type { CanActivate, ExecutionContext } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { ExecutionContextHost } from '@nestjs/core/helpers/execution-context-host.js';
import { Redis } from 'ioredis';
import {
  FENCE_STORE,
  Fenced,
  FencingToken,
  FencingTokenGuard,
  fencingHeaders,
  LockExceptionFilter,
  Locked,
  LockOptionsError,
  RedisFence,
  type FenceStore,
} from 'nest-redis-lock';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { startApp, type TestApp } from '../support/nest-app.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { serverOfFile } from '../support/stage.js';

/** For tests that a busy machine must not affect: with the usual second, the answer could be 503. */
const PATIENT = { timeoutMs: 60_000 } as const;

const TOKEN = 1_790_000_000_000_000;

@Injectable()
class Writes {
  readonly all: (number | undefined)[] = [];
}

/** Knows the user. */
class OfAcme implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    context.switchToHttp().getRequest<{ user: object }>().user = { tenant: 'acme:eu' };
    return true;
  }
}

@Controller('stock')
class StockController {
  constructor(private readonly writes: Writes) {}

  @Put(':sku')
  @Fenced('product:{params.sku}')
  write(@Param('sku') sku: string, @FencingToken() token: number): { sku: string } {
    this.writes.all.push(token);
    return { sku };
  }

  @Put(':sku/patient')
  @Fenced('product:{params.sku}', PATIENT)
  patient(@FencingToken() token: number): void {
    this.writes.all.push(token);
  }

  @Put(':sku/of-a-tenant')
  @Fenced('@{user.tenant}/product:{params.sku}', PATIENT)
  @UseGuards(OfAcme)
  ofATenant(@FencingToken() token: number): void {
    this.writes.all.push(token);
  }

  @Post(':sku/named')
  @UseGuards(FencingTokenGuard)
  named(): void {
    this.writes.all.push(0);
  }

  @Post(':sku/optional')
  @Fenced('product:{params.sku}', { ...PATIENT, optional: true })
  optional(@FencingToken(undefined, { optional: true }) token?: number): void {
    this.writes.all.push(token);
  }

  @Post(':sku/locked-above')
  @Locked('here:{params.sku}')
  @Fenced('product:{params.sku}', PATIENT)
  async lockedAbove(): Promise<void> {}

  @Post(':sku/locked-below')
  @Fenced('product:{params.sku}', PATIENT)
  @Locked('here:{params.sku}')
  async lockedBelow(): Promise<void> {}

  @Post(':sku/by-parameter')
  byParameter(@FencingToken('product:{params.sku}') token: number): void {
    this.writes.all.push(token);
  }

  @Post(':sku/optional-parameter')
  optionalParameter(@FencingToken('product:{params.sku}', { optional: true }) token?: number): void {
    this.writes.all.push(token);
  }

  @Post('close')
  @Fenced('close', { ...PATIENT, maxAheadMs: 600_000 })
  close(): void {}

  @Post('close/parameter')
  closeParameter(@FencingToken('close', { maxAheadMs: 600_000 }) _token: number): void {}

  @Post('any')
  @Fenced('any', { ...PATIENT, maxAheadMs: Infinity })
  any(): void {}

  @Post('any/parameter')
  anyParameter(@FencingToken('any', { maxAheadMs: Infinity }) _token: number): void {}

  @Get(':sku')
  read(@Param('sku') sku: string): { sku: string } {
    return { sku };
  }
}

@Controller('all')
@Fenced('all', PATIENT)
class AllController {
  @Put()
  write(): void {}

  @Put('other')
  @Fenced('other', PATIENT)
  other(): void {}
}

async function startShop(store: FenceStore): Promise<TestApp & { writes: Writes }> {
  const shop = await startApp({
    controllers: [StockController, AllController],
    providers: [Writes, { provide: FENCE_STORE, useValue: store }],
  });
  return { ...shop, writes: shop.app.get(Writes) };
}

function put(url: string, claim?: { key: string; fencingToken: number } | string, method = 'PUT'): Promise<Response> {
  const headers = typeof claim === 'string' ? { 'Fencing-Token': claim } : claim && fencingHeaders(claim);
  return fetch(url, { method, headers });
}

const tea = (fencingToken: number) => ({ key: 'product:tea', fencingToken });

const redis = await serverOfFile();
let fences = 0;

function redisFence(server = redis): RedisFence {
  const client = new Redis(server.url, { retryStrategy: () => null, maxRetriesPerRequest: 0 });
  client.on('error', () => {});
  onTestFinished(() => client.disconnect());
  return new RedisFence(client, { keyPrefix: `fenced${++fences}` });
}

describe('FencingTokenGuard', () => {
  it('the fencing guard accepts a token that is not older than the last one of its key, and answers 412 to an older one [G31]', async () => {
    const { url, writes } = await startShop(redisFence());
    const statuses = [];
    for (const token of [TOKEN, TOKEN, TOKEN + 2, TOKEN + 1, TOKEN, TOKEN + 2]) {
      statuses.push((await put(`${url}/stock/tea/patient`, tea(token))).status);
    }
    expect(statuses).toEqual([200, 200, 200, 412, 412, 200]);
    expect(writes.all).toEqual([TOKEN, TOKEN, TOKEN + 2, TOKEN + 2]);
    expect((await put(`${url}/stock/coffee/patient`, { key: 'product:coffee', fencingToken: TOKEN })).status).toBe(200);
  });

  it('answers 428 without the header and 400 to what it cannot read, and says which form it needs', async () => {
    const { url, writes } = await startShop(redisFence());
    const missing = await put(`${url}/stock/tea`);
    expect(missing.status).toBe(428);
    expect(await missing.json()).toMatchObject({ message: expect.stringContaining('Fencing-Token: <key') });
    for (const value of ['', '17', 'product:tea', 'product:tea=', 'product:tea=1, product:tea=2', '%zz=1']) {
      expect([value, (await put(`${url}/stock/tea`, value)).status]).toEqual([value, 400]);
    }
    expect(writes.all).toEqual([]);
  });

  it('remembers no key that only the request names: without @Fenced no request passes, nor reaches the store [G574]', async () => {
    const asked: string[] = [];
    const { url, writes, log } = await startShop({ raise: async (key) => asked.push(key) > 0 });
    const path = `${url}/stock/tea/named`;
    const refused = await put(path, { key: 'anything at all', fencingToken: TOKEN }, 'POST');
    expect(refused.status).toBe(500);
    expect(await refused.text()).not.toContain('anything');
    expect((await put(path, undefined, 'POST')).status).toBe(500);
    expect([asked, writes.all]).toEqual([[], []]);
    expect(log.lines.join()).toContain("StockController.named has a FencingTokenGuard but no key: write @Fenced('…')");
  });

  it('accepts requests without a token where it is optional, but no stale or unreadable token', async () => {
    const { url, writes } = await startShop(redisFence());
    const path = `${url}/stock/tea/optional`;
    expect((await put(path, undefined, 'POST')).status).toBe(201);
    expect((await put(path, tea(TOKEN), 'POST')).status).toBe(201);
    expect((await put(path, tea(TOKEN - 1), 'POST')).status).toBe(412);
    expect((await put(path, 'what?', 'POST')).status).toBe(400);
    expect(writes.all).toEqual([undefined, TOKEN]);
  });

  const [other, all] = [
    { key: 'other', fencingToken: TOKEN },
    { key: 'all', fencingToken: TOKEN },
  ];
  const ofTenant = (name: string) => ({ key: `@${name}/product:tea`, fencingToken: TOKEN });

  it.each<[path: string, method: string, claims: Parameters<typeof put>[1][], statuses: number[]]>([
    ['stock/tea/locked-above', 'POST', [undefined, tea(TOKEN), tea(TOKEN - 1)], [428, 201, 412]],
    ['stock/tea/locked-below', 'POST', [undefined, tea(TOKEN), tea(TOKEN - 1)], [428, 201, 412]],
    ['all', 'PUT', [undefined, all], [428, 200]],
    ['all/other', 'PUT', [other, all], [200, 400]],
    ['stock/tea', 'GET', [undefined], [200]],
    ['stock/tea/by-parameter', 'POST', [tea(TOKEN), undefined, 'what?', other], [201, 428, 400, 400]],
    ['stock/tea/optional-parameter', 'POST', [undefined, 'what?'], [201, 400]],
    ['stock/tea/of-a-tenant', 'PUT', [tea(TOKEN), ofTenant('globex'), ofTenant('acme%3Aeu')], [400, 400, 200]],
  ])('answers as the decorators of a handler and of its controller say: %s', async (path, method, claims, statuses) => {
    const { url } = await startShop(redisFence());
    const seen = [];
    for (const claim of claims) seen.push((await put(`${url}/${path}`, claim, method)).status);
    expect(seen).toEqual(statuses);
  });

  it('refuses a request when its store gives no answer', async () => {
    const { url, writes } = await startShop({ raise: async () => undefined as never });
    expect((await put(`${url}/stock/tea`, tea(TOKEN))).status).toBe(412);
    expect(writes.all).toEqual([]);
  });

  it('keeps the key out of the answer to the token of another lock [G569]', async () => {
    const { url } = await startShop(redisFence());
    for (const [path, method] of [
      ['stock/secret', 'PUT'],
      ['stock/secret/by-parameter', 'POST'],
    ] as const) {
      const refused = await put(`${url}/${path}`, { key: 'product:coffee', fencingToken: TOKEN }, method);
      const text = await refused.text();
      expect(refused.status).toBe(400);
      expect(text).toContain('Fencing-Token');
      expect(text).not.toMatch(/secret|product|coffee/);
    }
  });

  it('the fencing guard answers 503 when Redis hangs or is gone, and refuses all requests [G32]', async () => {
    const server = await RedisServer.start();
    onTestFinished(() => server.stop());
    const { url, writes, log } = await startShop(redisFence(server));
    expect((await put(`${url}/stock/tea/patient`, tea(TOKEN))).status).toBe(200);
    server.pause();
    expect((await put(`${url}/stock/tea`, tea(TOKEN))).status).toBe(503);
    server.resume();
    await server.kill();
    const refused = await put(`${url}/stock/tea`, tea(TOKEN));
    expect(refused.status).toBe(503);
    expect(await refused.text()).not.toContain('product:tea');
    expect(writes.all).toEqual([TOKEN]);
    const causes = log.lines.flatMap((line) => /fence store: (.*?)\. Check/.exec(line)?.[1] ?? []);
    expect(causes).toEqual(['no answer within 1000 ms', expect.any(String)]);
    expect(causes[1]).not.toContain('no answer');
  });

  it('reads the request of a GraphQL context, and refuses what has no headers', async () => {
    const guard = new FencingTokenGuard(redisFence());
    @Fenced('x')
    class Resolver {}
    const resolver = (headers: object) => {
      const context = new ExecutionContextHost([{}, {}, { req: { headers } }, {}], Resolver, () => {});
      context.setType('graphql');
      return context;
    };
    expect(await guard.canActivate(resolver({ 'fencing-token': 'x=2' }))).toBe(true);
    await expect(guard.canActivate(resolver({ 'fencing-token': 'x=1' }))).rejects.toThrow('too old');
    const message = new ExecutionContextHost([{}], Resolver, () => {});
    message.setType('rpc');
    await expect(guard.canActivate(message)).rejects.toBeInstanceOf(LockOptionsError);
  });
});

describe('a token that is ahead of the time', () => {
  const aheadBy = (ms: number) => (Date.now() + ms) * 1_000;
  const MINUTE = 60_000;
  const DAY = 1_440 * MINUTE;
  const FAR = [Number.MAX_SAFE_INTEGER, aheadBy(2 * DAY)];

  it('is refused with 400 if it is by more than a day, and poisons no fence [G570]', async () => {
    const store = redisFence();
    const { url, writes } = await startShop(store);
    for (const token of FAR) {
      const refused = await put(`${url}/stock/tea/patient`, tea(token));
      expect([refused.status, await refused.json()]).toEqual([
        400,
        expect.objectContaining({
          message: 'The Fencing-Token of this request is too far ahead of the clock of this server.',
        }),
      ]);
      expect((await put(`${url}/stock/tea/by-parameter`, tea(token), 'POST')).status).toBe(400);
    }
    expect(writes.all).toEqual([]);
    const allowed = [0, 1, TOKEN, aheadBy(0), aheadBy(DAY / 2)].sort((a, b) => a - b);
    for (const token of allowed) expect((await put(`${url}/stock/tea/patient`, tea(token))).status).toBe(200);
  });

  it('may be ahead by maxAheadMs, where Infinity allows all tokens [G571]', async () => {
    const { url } = await startShop(redisFence());
    for (const path of ['stock/close', 'stock/close/parameter']) {
      const send = async (fencingToken: number) =>
        (await put(`${url}/${path}`, { key: 'close', fencingToken }, 'POST')).status;
      expect([await send(aheadBy(0)), await send(aheadBy(30 * MINUTE))]).toEqual([201, 400]);
    }
    for (const path of ['stock/any', 'stock/any/parameter']) {
      const claim = { key: 'any', fencingToken: Number.MAX_SAFE_INTEGER };
      expect((await put(`${url}/${path}`, claim, 'POST')).status).toBe(201);
    }
  });

  it('is recognized by the clock of the machine, even while a test fakes the date [G572]', async () => {
    const { url } = await startShop(redisFence());
    const now = aheadBy(0);
    vi.useFakeTimers({ toFake: ['Date'] });
    onTestFinished(() => void vi.useRealTimers());
    for (const year of ['1971', '2250']) {
      vi.setSystemTime(new Date(`${year}-01-01`));
      expect((await put(`${url}/stock/tea/patient`, tea(now))).status).toBe(200);
      for (const token of FAR) expect((await put(`${url}/stock/tea/patient`, tea(token))).status).toBe(400);
    }
  });

  it('is never a token that a lock has just got, from Redis or in memory [G573]', async () => {
    for (const options of [{ redis: redis.url }, { memory: true }] as const) {
      const { url } = await startShop(redisFence());
      const locks = await openLocks(options);
      for (const _ of [1, 2]) {
        await locks.withLock('close', async (lock) => {
          expect((await put(`${url}/stock/close`, lock, 'POST')).status).toBe(201);
        });
      }
    }
  });
});

describe('@Fenced', () => {
  const defineFenced = (...given: unknown[]) => {
    class Stock {
      @((Fenced as (...args: unknown[]) => MethodDecorator)(...given))
      write(): void {}
    }
    return Stock;
  };
  const defineToken = (...given: unknown[]) => {
    class Stock {
      write(@((FencingToken as (...args: unknown[]) => ParameterDecorator)(...given)) _token: number): void {}
    }
    return Stock;
  };

  it('refuses invalid use when the class is defined, and names the method [G616]', () => {
    for (const [decorator, define] of [
      ['@Fenced', defineFenced],
      ['@FencingToken', defineToken],
    ] as const) {
      const refused = (problem: string, ...given: unknown[]) => {
        expect(() => define(...given)).toThrow(LockOptionsError);
        expect(() => define(...given)).toThrow(`${decorator} on Stock.write: ${problem}`);
      };
      refused('The key "order:{0}" of a fence cannot use arguments', 'order:{0}');
      for (const key of ['', 'order:{params}', null, 7]) refused('the key ', key);
      refused('optional must be', 'order', { optional: 'yes' });
      for (const maxAheadMs of [-1, 999, 1_000.5, NaN, '5000', null])
        refused('maxAheadMs must be', 'order', { maxAheadMs });
    }
    for (const timeoutMs of [0, 60_001, null]) {
      expect(() => defineFenced('order', { timeoutMs })).toThrow('@Fenced on Stock.write: timeoutMs must be');
    }
    const onClass = Fenced('order', { timeoutMs: 0 });
    expect(() => onClass(class Orders {})).toThrow('@Fenced on Orders: timeoutMs must be');
  });

  it('@Fenced without a key is refused when the class is defined, since any token would pass [G615]', () => {
    expect(() => defineFenced()).toThrow(LockOptionsError);
    expect(() => defineFenced()).toThrow(
      '@Fenced on Stock.write: the key must be a string like "stock:{params.sku}": got undefined.',
    );
    expect(() => defineToken()).not.toThrow();
  });

  it('the first request without a part of the key of a fence is a warning that names the handler [G617]', async () => {
    @Controller('stock')
    class Stock {
      @Post('fenced')
      @Fenced('product:{body.sku}')
      fenced(@Body() _body: object): void {}
      @Post('token')
      token(@Body() _body: object, @FencingToken('product:{body.sku}') _token: number): void {}
    }
    const store: FenceStore = { raise: async () => true };
    const { url, log } = await startApp({
      controllers: [Stock],
      providers: [
        { provide: FENCE_STORE, useValue: store },
        { provide: APP_FILTER, useClass: LockExceptionFilter },
      ],
    });
    for (const path of ['fenced', 'token', 'fenced', 'token']) {
      expect((await put(`${url}/stock/${path}`, tea(TOKEN), 'POST')).status).toBe(400);
    }
    const warning = (where: string) =>
      `warn ${where}: the key "product:{body.sku}" cannot be built: {body.sku} is not in the request. The method did not run. If no ` +
      'request has {body.sku}, correct the key. Further requests without it are not logged here.';
    expect(log.lines).toEqual([warning('@Fenced on Stock.fenced'), warning('@FencingToken on Stock.token')]);
  });
});
