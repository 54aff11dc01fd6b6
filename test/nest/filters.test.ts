import { once } from 'node:events';
import {
  Catch,
  Controller,
  Get,
  Post,
  UseFilters,
  type ArgumentsHost,
  type INestApplication,
  type ModuleMetadata,
  type Type,
} from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { Args, Mutation, Query, Resolver } from '@nestjs/graphql';
import { MessagePattern } from '@nestjs/microservices';
import { WsAdapter } from '@nestjs/platform-ws';
import { SubscribeMessage, WebSocketGateway } from '@nestjs/websockets';
import {
  LockContendedError,
  LockError,
  LockExceptionFilter,
  LockGraphQLExceptionFilter,
  LockHttpExceptionFilter,
  LockKeyError,
  LockLostError,
  LockOptionsError,
  LockRpcExceptionFilter,
  LockService,
  LockUnavailableError,
  LockWsExceptionFilter,
  Locked,
  StaleTokenError,
  type LockErrorAnswer,
} from 'nest-redis-lock';
import { lastValueFrom } from 'rxjs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { execute, graphQLModule } from '../support/graphql.js';
import { HTTP_ADAPTERS, makeApp, post, startApp, type TestApp } from '../support/nest-app.js';
import { makeRpcApp } from '../support/rpc.js';

@Controller()
class Orders {
  @Post('busy')
  @MessagePattern('busy')
  @Locked('secret-key', { waitMs: 0 })
  async busy(): Promise<string> {
    return 'done';
  }
}

@Controller()
class HttpOrders extends Orders {
  @Post('keyed')
  @Locked('order:{body.order.id}')
  async keyed(): Promise<string> {
    return 'done';
  }
}

@Controller()
class RpcOrders extends Orders {
  @MessagePattern('keyed')
  @Locked('order:{data.order.id}')
  async keyed(): Promise<string> {
    return 'done';
  }
}

/** Nest does not ask filters of the whole application for gateways. */
function gatewayWith(filter: Type): Type {
  @WebSocketGateway()
  @UseFilters(filter)
  class WsOrders {
    @SubscribeMessage('busy')
    @Locked('secret-key', { waitMs: 0 })
    async busy(): Promise<string> {
      return 'done';
    }

    @SubscribeMessage('keyed')
    @Locked('order:{data.order.id}')
    async keyed(): Promise<string> {
      return 'done';
    }
  }
  return WsOrders;
}

@Resolver()
class GraphQLOrders {
  @Query(() => String)
  async needed(): Promise<string> {
    return 'a schema has to have a query';
  }

  @Mutation(() => String)
  @Locked('secret-key', { waitMs: 0 })
  async busy(): Promise<string> {
    return 'done';
  }

  @Mutation(() => String)
  @Locked('order:{args.order}')
  async keyed(@Args('order', { nullable: true }) _order?: string): Promise<string> {
    return 'done';
  }
}

/** What a client sees of a request that fails. */
type Ask = (what: 'busy' | 'keyed') => Promise<unknown>;

interface Transported {
  name: string;
  filter: Type;
  /** What its client gets around the answer. */
  around: (answer: object, what: string) => unknown;
  field: string;
  open: (filter: Type, lock: Parameters<typeof makeApp>[1]) => Promise<TestApp & { ask: Ask }>;
}

/** For the whole application: the same for every transport. */
const filtered = (filter: Type, metadata: ModuleMetadata): ModuleMetadata => ({
  ...metadata,
  providers: [{ provide: APP_FILTER, useClass: filter }, ...(metadata.providers ?? [])],
});

const TRANSPORTS: Transported[] = [
  ...HTTP_ADAPTERS.map(([name, makeAdapter]): Transported => ({
    name: `HTTP on ${name}`,
    filter: LockHttpExceptionFilter,
    around: (answer) => answer,
    field: 'body.order.id',
    open: async (filter, lock) => {
      const metadata = filtered(filter, { controllers: [HttpOrders] });
      const test = await startApp(metadata, lock, undefined, makeAdapter());
      return { ...test, ask: async (what) => (await post(`${test.url}/${what}`, {})).json() };
    },
  })),
  {
    name: 'RPC',
    filter: LockRpcExceptionFilter,
    around: (answer) => ({ status: 'error', ...answer }),
    field: 'data.order.id',
    open: async (filter, lock) => {
      const { client, ...test } = await makeRpcApp(filtered(filter, { controllers: [RpcOrders] }), lock);
      return { ...test, ask: (what) => lastValueFrom(client.send(what, {})).catch((error: unknown) => error) };
    },
  },
  {
    name: 'WebSockets',
    filter: LockWsExceptionFilter,
    around: (answer, what) => ({
      event: 'exception',
      data: { status: 'error', ...answer, cause: { pattern: what, data: { mine: 1 } } },
    }),
    field: 'data.order.id',
    open: async (filter, lock) => {
      const adapt = (app: INestApplication) => app.useWebSocketAdapter(new WsAdapter(app));
      const test = await startApp({ providers: [gatewayWith(filter)] }, lock, adapt);
      const socket = new WebSocket(test.url.replace('http', 'ws'));
      onTestFinished(() => socket.terminate());
      await once(socket, 'open');
      const ask: Ask = async (event) => {
        const answer = once(socket, 'message');
        socket.send(JSON.stringify({ event, data: { mine: 1 } }));
        return JSON.parse(String((await answer)[0]));
      };
      return { ...test, ask };
    },
  },
  {
    name: 'GraphQL',
    filter: LockGraphQLExceptionFilter,
    around: ({ message, ...extensions }: { message?: string }, what) => [
      { message, path: [what], locations: expect.anything(), extensions },
    ],
    field: 'args.order',
    open: async (filter, lock) => {
      const imports = [graphQLModule()];
      const test = await makeApp(filtered(filter, { imports, providers: [GraphQLOrders] }), lock);
      const ask: Ask = async (what) => {
        const { errors } = await execute(test.app, `mutation { ${what} }`);
        return JSON.parse(JSON.stringify(errors)); // as it is sent
      };
      return { ...test, ask };
    },
  },
];

const BUSY: LockErrorAnswer = {
  statusCode: 409,
  code: 'LOCK_CONTENDED',
  message: 'It is in use at the moment: try again later.',
  retryAfterMs: expect.any(Number),
};
const DOWN: LockErrorAnswer = {
  statusCode: 503,
  code: 'LOCK_UNAVAILABLE',
  message: 'The service is not available at the moment: try again later.',
};
const badKey = (field: string): LockErrorAnswer => ({
  statusCode: 400,
  code: 'LOCK_KEY',
  message: `${field} is missing, or cannot be used.`,
  field,
});

describe.each(TRANSPORTS)('clients of $name', ({ filter, around, field, open }) => {
  it.each([
    ['the filter of the transport', filter],
    ['the filter for all', LockExceptionFilter],
  ])(
    'clients see from %s whether a lock is busy or down, or their request has no key, and nothing else [G198]',
    async (_what, by) => {
      const { ask, locks, log } = await open(by, { memory: true });
      const held = await locks.acquire('secret-key');
      const busy = await ask('busy');
      expect(busy).toEqual(around(BUSY, 'busy'));
      await held.release();
      const keyed = await ask('keyed');
      expect(keyed).toEqual(around(badKey(field), 'keyed'));
      const without = await open(by, { redis: 'redis://127.0.0.1:1', lazyConnect: true, commandTimeoutMs: 20 });
      const down = await without.ask('busy');
      expect(down).toEqual(around(DOWN, 'busy'));
      const seen = JSON.stringify([busy, keyed, down]);
      for (const secret of ['secret', held.owner, process.pid, '127.0.0.1']) expect(seen).not.toContain(String(secret));
      const logs = [log, without.log];
      expect(logs.flatMap(({ lines }) => lines).filter((line) => line.startsWith('error'))).toEqual([]);
      const named = /Lock "secret-key"|the key "order|[\w.]+\.order/;
      expect(logs.flatMap(({ debugged }) => debugged.map((line) => named.exec(line)?.[0]))).toHaveLength(3);
    },
  );
});

@Catch(RangeError)
class ForOthers {
  catch(): void {}
}

it('GraphQL clients see the code of a lock error without a filter [G199]', async () => {
  const { ask, locks } = await TRANSPORTS.at(-1)!.open(ForOthers, { memory: true });
  await using _held = await locks.acquire('secret-key');
  expect(await ask('busy')).toMatchObject([{ extensions: { code: 'LOCK_CONTENDED' } }]);
});

it('a client of Socket.IO gets an event', () => {
  const emitted: unknown[] = [];
  const client = { emit: (...parts: unknown[]) => emitted.push(parts) };
  const host = { switchToWs: () => ({ getClient: () => client, getPattern: () => 'pay', getData: () => 7 }) };
  new LockWsExceptionFilter().catch(new LockContendedError('k', 0), host as unknown as ArgumentsHost);
  const { retryAfterMs: _, ...answer } = BUSY;
  expect(emitted).toEqual([['exception', { status: 'error', ...answer, cause: { pattern: 'pay', data: 7 } }]]);
});

it('a person whose lock has run out is answered with 409, and with words that fit [G1034]', async () => {
  @Controller()
  class Editing {
    constructor(private readonly locks: LockService) {}

    @Get()
    async goOn(): Promise<void> {
      const parcel = await (await this.locks.acquire('document:1')).detach({ ttlMs: 60_000 });
      await this.locks.forceRelease(parcel.key);
      await this.locks.extend(parcel, { ttlMs: 60_000 });
    }
  }
  const { url } = await startApp(filtered(LockExceptionFilter, { controllers: [Editing] }));
  const response = await fetch(url);
  expect(response.status).toBe(409);
  expect(await response.json()).toEqual({
    statusCode: 409,
    code: 'LOCK_LOST',
    message: 'It is no longer locked for you: read it again before you go on.',
  });
});

describe.each(HTTP_ADAPTERS)('a filter that was made by new, on %s,', (_name, makeAdapter) => {
  @Controller()
  class Busy {
    @Get('local')
    @UseFilters(new LockHttpExceptionFilter())
    async local(): Promise<never> {
      throw new LockContendedError('k', 0, { remainingMs: 1_500 });
    }

    @Get('global')
    async global(): Promise<never> {
      throw new LockContendedError('k', 0, { remainingMs: 1_500 });
    }
  }

  it.each(['local', 'global'])('answers as one that Nest has made: %s', async (path) => {
    const { url } = await startApp(
      { controllers: [Busy] },
      undefined,
      (app) => app.useGlobalFilters(new LockExceptionFilter()),
      makeAdapter(),
    );
    const response = await fetch(`${url}/${path}`);
    expect([response.status, response.headers.get('retry-after')]).toEqual([409, '2']);
    expect(await response.json()).toEqual({ ...BUSY, retryAfterMs: 1_500 });
  });
});

describe.each(HTTP_ADAPTERS)('Retry-After on %s', (_name, makeAdapter) => {
  @Controller()
  class Throws {
    @Post('request')
    @Locked('order:{body.id}', { waitMs: 0 })
    async ofRequest(): Promise<void> {}
  }

  const start = () => startApp({ controllers: [Throws] }, undefined, undefined, makeAdapter());

  it('Retry-After is set where a lock is refused, beside the plain answer of Nest [G200]', async () => {
    const { url, locks } = await start();
    await using _held = await locks.acquire('order:1', { ttlMs: 5_000 });
    const response = await post(`${url}/request`, { id: 1 });
    expect([response.status, response.headers.get('retry-after')]).toEqual([409, '5']);
    expect(await response.json()).toEqual({ statusCode: 409, message: 'Conflict' });
  });
});

it('the filter for all leaves an error to the caller of a transport that it does not know', () => {
  const error = new LockContendedError('k', 0);
  const host = { getType: () => 'terminal' } as unknown as ArgumentsHost;
  expect(() => new LockExceptionFilter().catch(error, host)).toThrow(error);
});

describe('what the filters log', () => {
  it.each<[LockError, 'debug' | 'warn' | 'error']>([
    [new LockContendedError('k', 0), 'debug'],
    [LockUnavailableError.from('acquired', 'k', []), 'debug'],
    [new LockKeyError('of a request', 400, { field: 'body.id' }), 'debug'],
    [new LockKeyError('of a route', 400, { field: 'params.idd' }), 'debug'],
    [new LockKeyError('of a guard', 400, { field: 'user.id' }), 'debug'],
    [new LockLostError('k', 'expired'), 'warn'],
    [new StaleTokenError(1), 'warn'],
    [new LockKeyError('of arguments'), 'error'],
    [new LockOptionsError('wrong'), 'error'],
  ])('of %s is of the level %s', async (error, level) => {
    const { log } = await makeApp({});
    log.lines.length = 0;
    await expect(lastValueFrom(new LockRpcExceptionFilter().catch(error))).rejects.toMatchObject({ code: error.code });
    const debugged = log.debugged.map((line) => `debug ${line}`);
    expect([...log.lines, ...debugged]).toEqual([expect.stringMatching(new RegExp(`^${level} .*`, 's'))]);
  });
});
