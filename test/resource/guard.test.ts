import { Body, Controller, Get, Injectable, Param, Post, Put, UseGuards, type CanActivate } from '@nestjs/common';
import { ExecutionContextHost } from '@nestjs/core/helpers/execution-context-host.js';
import { Redis } from 'ioredis';
import {
  FENCE_STORE,
  Fenced,
  FencingToken,
  FencingTokenGuard,
  fencingHeaders,
  Locked,
  LockOptionsError,
  RedisFence,
  SqlFence,
  type FenceStore,
} from 'nest-redis-lock';
import { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { startApp, type TestApp } from '../support/nest-app.js';
import { candidatePort } from '../../servers/candidate-port.js';
import { randomOf } from '../support/random.js';
import { RedisServer } from '../support/redis-server.js';
import { DATABASES, tableName, type Database } from './database.js';

const TOKEN = 1_790_000_000_000_000;

@Injectable()
class Writes {
  readonly all: (number | undefined)[] = [];
}

@Injectable()
class NobodyPasses implements CanActivate {
  canActivate(): boolean {
    return false;
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

  /** For tests of which a busy machine may not decide: with the usual second, it could answer 503. */
  @Put(':sku/patient')
  @Fenced('product:{params.sku}', { timeoutMs: 60_000 })
  patient(@FencingToken() token: number): void {
    this.writes.all.push(token);
  }

  @Post(':sku/named')
  @UseGuards(FencingTokenGuard)
  named(): void {
    this.writes.all.push(0);
  }

  @Post(':sku/optional')
  @Fenced('product:{params.sku}', { optional: true })
  optional(@FencingToken(undefined, { optional: true }) token?: number): void {
    this.writes.all.push(token);
  }

  @Post(':sku/locked-above')
  @Locked('here:{params.sku}')
  @Fenced('product:{params.sku}')
  async lockedAbove(): Promise<void> {}

  @Post(':sku/locked-below')
  @Fenced('product:{params.sku}')
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

  @Post('stock/impatient')
  @Fenced('impatient', { timeoutMs: 50 })
  impatient(): void {}

  @Post('by-body')
  @Fenced('product:{body.sku}')
  byBody(@Body() _body: object): void {}

  @Get(':sku')
  read(@Param('sku') sku: string): { sku: string } {
    return { sku };
  }
}

@Controller('denied')
@UseGuards(NobodyPasses)
class DeniedController {
  @Put()
  @Fenced('denied')
  write(): void {}
}

@Controller('all')
@Fenced('all')
class AllController {
  @Put()
  write(): void {}

  @Put('other')
  @Fenced('other')
  other(): void {}
}

async function startShop(store: FenceStore): Promise<TestApp & { writes: Writes }> {
  const shop = await startApp({
    controllers: [StockController, DeniedController, AllController],
    providers: [Writes, { provide: FENCE_STORE, useValue: store }],
  });
  return { ...shop, writes: shop.app.get(Writes) };
}

function put(url: string, claim?: { key: string; fencingToken: number } | string, method = 'PUT'): Promise<Response> {
  const headers = typeof claim === 'string' ? { 'Fencing-Token': claim } : claim && fencingHeaders(claim);
  return fetch(url, { method, headers });
}

const tea = (fencingToken: number) => ({ key: 'product:tea', fencingToken });

let redis: RedisServer;

beforeAll(async () => {
  redis = await RedisServer.start();
});

afterAll(async () => {
  await redis.stop();
});

function redisFence(server = redis): RedisFence {
  const client = new Redis(server.url, { retryStrategy: () => null, maxRetriesPerRequest: 0 });
  client.on('error', () => {});
  onTestFinished(() => client.disconnect());
  return new RedisFence(client, { keyPrefix: tableName() });
}

interface OpenStore {
  store: FenceStore;
  close: () => Promise<unknown>;
}

async function openRedisFence(): Promise<OpenStore> {
  const client = new Redis(redis.url);
  return { store: new RedisFence(client, { keyPrefix: tableName() }), close: () => client.quit() };
}

async function openSqlFence(open: () => Promise<Database>): Promise<OpenStore> {
  const { pool, stop } = await open();
  const table = tableName();
  await pool.query(`CREATE TABLE ${table} (key text PRIMARY KEY, fence bigint NOT NULL)`);
  const store = new SqlFence((text, values) => pool.query(text, values), { table });
  return { store, close: () => pool.query(`DROP TABLE ${table}`).then(stop) };
}

const STORES: [name: string, open: () => Promise<OpenStore>][] = [
  ['Redis', openRedisFence],
  ...DATABASES.map(([name, open]): (typeof STORES)[number] => [name, () => openSqlFence(open)]),
];

describe.each(STORES)('FencingTokenGuard with a store in %s', (_name, open) => {
  let opened: OpenStore;

  beforeAll(async () => {
    opened = await open();
  }, 60_000);

  afterAll(() => opened.close());

  it('the fencing guard lets pass what is not older than what was seen of its key, and answers 412 to what is [G31]', async () => {
    const { url, writes } = await startShop(opened.store);
    const statuses = [];
    for (const token of [TOKEN, TOKEN, TOKEN + 2, TOKEN + 1, TOKEN, TOKEN + 2]) {
      statuses.push((await put(`${url}/stock/tea/patient`, tea(token))).status);
    }
    expect(statuses).toEqual([200, 200, 200, 412, 412, 200]);
    expect(writes.all).toEqual([TOKEN, TOKEN, TOKEN + 2, TOKEN + 2]);
    expect((await put(`${url}/stock/coffee/patient`, { key: 'product:coffee', fencingToken: TOKEN })).status).toBe(200);
  });

  it('lets the newest of many pass, whatever the order, and nobody behind it', async () => {
    const { url } = await startShop(opened.store);
    const random = randomOf(11);
    const tokens = Array.from({ length: 60 }, (_, index) => TOKEN + index).sort(() => random() - 0.5);
    const send = async (fencingToken: number) =>
      (await put(`${url}/stock/cocoa/patient`, { key: 'product:cocoa', fencingToken })).status;
    const statuses = await Promise.all(tokens.map(send));
    expect(statuses[tokens.indexOf(TOKEN + 59)]).toBe(200);
    expect(new Set(statuses)).toEqual(new Set([200, 412]));
    expect(await Promise.all(tokens.map(send))).toEqual(tokens.map((token) => (token === TOKEN + 59 ? 200 : 412)));
  });
});

describe('FencingTokenGuard', () => {
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

  it('answers 400 to the token of another lock, and does not remember it', async () => {
    const store = redisFence();
    const { url, writes } = await startShop(store);
    expect((await put(`${url}/stock/tea`, { key: 'product:coffee', fencingToken: TOKEN + 9 })).status).toBe(400);
    expect(writes.all).toEqual([]);
    expect(await store.raise('product:coffee', TOKEN)).toBe(true);
  });

  it('takes the key that the request names where it is used by itself', async () => {
    const { url } = await startShop(redisFence());
    const path = `${url}/stock/tea/named`;
    expect((await put(path, { key: 'anything at all', fencingToken: TOKEN }, 'POST')).status).toBe(201);
    expect((await put(path, { key: 'anything at all', fencingToken: TOKEN - 1 }, 'POST')).status).toBe(412);
    expect((await put(path, undefined, 'POST')).status).toBe(428);
  });

  it('lets requests without a token pass where it is optional, and no stale or unreadable one', async () => {
    const { url, writes } = await startShop(redisFence());
    const path = `${url}/stock/tea/optional`;
    expect((await put(path, undefined, 'POST')).status).toBe(201);
    expect((await put(path, tea(TOKEN), 'POST')).status).toBe(201);
    expect((await put(path, tea(TOKEN - 1), 'POST')).status).toBe(412);
    expect((await put(path, 'what?', 'POST')).status).toBe(400);
    expect(writes.all).toEqual([undefined, TOKEN]);
  });

  it('works above and below @Locked, and on a controller, where a handler may have its own key', async () => {
    const { url } = await startShop(redisFence());
    for (const path of ['stock/tea/locked-above', 'stock/tea/locked-below']) {
      expect((await put(`${url}/${path}`, undefined, 'POST')).status).toBe(428);
      expect((await put(`${url}/${path}`, tea(TOKEN), 'POST')).status).toBe(201);
      expect((await put(`${url}/${path}`, tea(TOKEN - 1), 'POST')).status).toBe(412);
    }
    expect((await put(`${url}/all`, { key: 'all', fencingToken: TOKEN })).status).toBe(200);
    expect((await put(`${url}/all`)).status).toBe(428);
    expect((await put(`${url}/all/other`, { key: 'other', fencingToken: TOKEN })).status).toBe(200);
    expect((await put(`${url}/all/other`, { key: 'all', fencingToken: TOKEN })).status).toBe(400);
    expect((await put(`${url}/stock/tea`, undefined, 'GET')).status).toBe(200);
  });

  it('answers 400 where the key cannot be made of the request', async () => {
    const { url } = await startShop(redisFence());
    expect((await put(`${url}/stock/by-body`, tea(TOKEN), 'POST')).status).toBe(400);
  });

  it('is not asked after a guard that denies', async () => {
    const store = redisFence();
    const { url } = await startShop(store);
    expect((await put(`${url}/denied`, { key: 'denied', fencingToken: TOKEN })).status).toBe(403);
    expect(await store.raise('denied', 1)).toBe(true);
  });

  it('keeps the key out of the answer to a stale token, and tells it the log', async () => {
    const { url, log } = await startShop(redisFence());
    await put(`${url}/stock/secret`, { key: 'product:secret', fencingToken: TOKEN });
    const refused = await put(`${url}/stock/secret`, { key: 'product:secret', fencingToken: TOKEN - 1 });
    expect(refused.status).toBe(412);
    expect(await refused.text()).not.toContain('secret');
    expect(log.lines.join()).toContain('of lock "product:secret" is too old');
  });

  it('the fencing guard answers 503 when Redis hangs or is gone, and lets nobody pass [G32]', async () => {
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

  it('answers 503 when nobody listens at the database', async () => {
    const pool = new Pool({ host: '127.0.0.1', port: await candidatePort(), user: 'nobody' });
    onTestFinished(() => pool.end());
    const { url, writes } = await startShop(new SqlFence((text, values) => pool.query(text, values)));
    expect((await put(`${url}/stock/tea`, tea(TOKEN))).status).toBe(503);
    expect(writes.all).toEqual([]);
  });

  it('answers 503 when a store of another kind throws, or says neither yes nor no', async () => {
    const { url } = await startShop({
      raise: () => {
        throw new Error('surely not');
      },
    });
    expect((await put(`${url}/stock/tea`, tea(TOKEN))).status).toBe(503);
    const silent = await startShop({ raise: async () => undefined as never });
    expect((await put(`${silent.url}/stock/tea`, tea(TOKEN))).status).toBe(412);
    expect(silent.writes.all).toEqual([]);
  });

  it('waits for the store as long as it is told to', async () => {
    const { url, log } = await startShop({ raise: () => new Promise(() => {}) });
    const refused = await put(`${url}/stock/stock/impatient`, { key: 'impatient', fencingToken: TOKEN }, 'POST');
    expect(refused.status).toBe(503);
    expect(log.lines.join()).toContain('no answer within 50 ms');
  });

  it('does not start without a store', async () => {
    await expect(startApp({ controllers: [StockController], providers: [Writes] })).rejects.toThrow('FENCE_STORE');
  });

  it('reads the request of a GraphQL context, and refuses what has no headers', async () => {
    const guard = new FencingTokenGuard(redisFence());
    const resolver = (headers: object) => {
      const context = new ExecutionContextHost([{}, {}, { req: { headers } }, {}], class {}, () => {});
      context.setType('graphql');
      return context;
    };
    expect(await guard.canActivate(resolver({ 'fencing-token': 'x=2' }))).toBe(true);
    await expect(guard.canActivate(resolver({ 'fencing-token': 'x=1' }))).rejects.toThrow('too old');
    const message = new ExecutionContextHost([{}], class {}, () => {});
    message.setType('rpc');
    await expect(guard.canActivate(message)).rejects.toBeInstanceOf(LockOptionsError);
  });
});

describe('@FencingToken', () => {
  it('hands over the token of the lock that it names, and answers 428 and 400 as the guard does', async () => {
    const { url, writes } = await startShop(redisFence());
    const path = `${url}/stock/tea/by-parameter`;
    expect((await put(path, tea(TOKEN), 'POST')).status).toBe(201);
    expect((await put(path, undefined, 'POST')).status).toBe(428);
    expect((await put(path, { key: 'product:coffee', fencingToken: TOKEN }, 'POST')).status).toBe(400);
    expect((await put(path, 'what?', 'POST')).status).toBe(400);
    expect((await put(`${url}/stock/tea/optional-parameter`, undefined, 'POST')).status).toBe(201);
    expect((await put(`${url}/stock/tea/optional-parameter`, 'what?', 'POST')).status).toBe(400);
    expect(writes.all).toEqual([TOKEN, undefined]);
  });
});

describe('@Fenced', () => {
  it('refuses what cannot be meant, when the class is defined', () => {
    expect(() => Fenced('order:{0}')).toThrow('cannot be made of arguments');
    expect(() => FencingToken('order', { optional: 1 as never })).toThrow(LockOptionsError);
    expect(() => FencingToken('order:{0}')).toThrow('cannot be made of arguments');
    expect(() => Fenced('')).toThrow(LockOptionsError);
    expect(() => Fenced('order:{params}')).toThrow(LockOptionsError);
    expect(() => Fenced('order', { optional: 'yes' as never })).toThrow(LockOptionsError);
    expect(() => Fenced('order', { timeoutMs: 0 })).toThrow(LockOptionsError);
  });
});
