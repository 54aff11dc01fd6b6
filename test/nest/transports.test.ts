import { once } from 'node:events';
import { Controller, Inject, UseGuards, type CanActivate, type ExecutionContext, type Type } from '@nestjs/common';
import { Args, Field, GqlExecutionContext, Mutation, ObjectType, Query, ResolveField, Resolver } from '@nestjs/graphql';
import { EventPattern, MessagePattern, RpcException } from '@nestjs/microservices';
import { WsAdapter } from '@nestjs/platform-ws';
import { SubscribeMessage, WebSocketGateway, type OnGatewayDisconnect } from '@nestjs/websockets';
import { fromContext, Limited, Locked, lockKey, LockService } from 'nest-redis-lock';
import { lastValueFrom, Subject, tap, toArray, type Observable } from 'rxjs';
import { beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { Gate } from '../support/gate.js';
import { execute, graphQLModule } from '../support/graphql.js';
import { makeApp, startApp } from '../support/nest-app.js';
import { makeRpcApp } from '../support/rpc.js';
import { until } from '../support/until.js';
import { ALONE, ordersOf, TRANSPORTS, type Transport } from './transports.js';

type Decorate = (key: never) => MethodDecorator;

const DECORATORS: Record<string, Decorate> = {
  locked: (key) => Locked(key) as MethodDecorator,
  limited: (key) => Limited(key, { limit: 2 }) as MethodDecorator,
};

/** Each way to write the key of a lock, and the key that it makes from the request `{ id: 'a:b' }`. */
const spellings = ({ part, type }: Transport): [name: string, key: unknown, made: string][] => [
  ['request', `order:{${part}.id}`, 'order:a%3Ab'],
  ['argument', 'order:{0}', 'order:a%3Ab'],
  ['function', (id: string) => lockKey`order:${id}`, 'order:a%3Ab'],
  ['context', fromContext((context) => `of ${context.getType<string>()}`), `of ${type}`],
  ['static', 'orders', 'orders'],
];

/** A handler for each decorator and each spelling of its key, above the decorator of the handler and below it. */
function spelled(transport: Transport): { handlers: Type; keys: Map<string, string> } {
  const keys = new Map<string, string>();
  @transport.holder()
  class Handlers {
    constructor(@Inject(LockService) readonly locks: LockService) {}
  }
  const prototype = Handlers.prototype;
  for (const [kind, decorate] of Object.entries(DECORATORS)) {
    for (const [spelling, key, made] of spellings(transport)) {
      for (const order of ['above', 'below']) {
        const name = `${kind}_${spelling}_${order}`;
        const both = [decorate(key as never), transport.handler(name)];
        const descriptor = {
          value: async function (this: Handlers, _id: string): Promise<string> {
            return this.locks.current().key;
          },
          configurable: true,
          writable: true,
        };
        Object.defineProperty(prototype, name, descriptor);
        Reflect.defineMetadata('design:paramtypes', [String], prototype, name);
        transport.argument('id')(prototype, name, 0);
        const decorated = Reflect.decorate(order === 'above' ? both : both.reverse(), prototype, name, descriptor);
        Object.defineProperty(prototype, name, decorated as PropertyDescriptor);
        keys.set(name, made);
      }
    }
  }
  return { handlers: Handlers, keys };
}

/** The answer that a client gets without a filter of this library. */
const REFUSED: Record<string, (code: string, statusCode: number, message: string) => unknown> = {
  http: (_code, statusCode, message) => ({ statusCode, message }),
  rpc: () => ({ status: 'error', message: 'Internal server error' }),
  ws: () => ({
    event: 'exception',
    data: { status: 'error', message: 'Internal server error', cause: expect.anything() },
  }),
  graphql: (code) => [expect.objectContaining({ extensions: expect.objectContaining({ code }) })],
};

describe.each([...TRANSPORTS, ALONE])('handlers of $name', (transport) => {
  it('hold their lock, or their permit, once, whichever decorator is above and however the key is written', async () => {
    const { handlers, keys } = spelled(transport);
    const { ask, acquired } = await transport.open(handlers);
    const answers = new Map<string, unknown>();
    for (const name of keys.keys()) answers.set(name, await ask(name, { id: 'a:b' }));
    expect(answers).toEqual(keys);
    expect(acquired).toEqual([...keys.values()]);
  });

  // Nest 11 does not send its own answer to an error on a WebSocket.
  const onlyOn = transport.type === 'ws' ? ' [Nest 12]' : '';

  it(`do not run when the lock is held or the request has no key, and no result is sent under a lost lock${onlyOn}`, async () => {
    const handlers = ordersOf(transport);
    const { app, ask, locks } = await transport.open(handlers);
    const lost = await ask('loses');
    await using held = await locks.acquire('secret-key');
    const seen = [lost, await ask('busy'), await ask('keyed')];
    const refused = REFUSED[transport.type]!;
    expect(seen).toEqual([
      refused('LOCK_LOST', 503, 'Service Unavailable'),
      refused('LOCK_CONTENDED', 409, 'Conflict'),
      refused('LOCK_KEY', 400, 'Bad Request'),
    ]);
    expect(app.get(handlers).ran).toEqual([]);
    await held.release();
    expect([await ask('busy'), await ask('keyed', { id: '7' })]).toEqual(['done', 'done']);
  });
});

it('the key of a GraphQL handler can be made from the request and its user, and the key of a socket handler from its user', async () => {
  const user = { id: 'ada' };
  class SetsUser implements CanActivate {
    canActivate(context: ExecutionContext): boolean {
      Object.assign(GqlExecutionContext.create(context).getContext<{ req: object }>().req, { user });
      return true;
    }
  }
  @Resolver()
  class Resolvers {
    constructor(private readonly locks: LockService) {}

    @Mutation(() => String)
    @UseGuards(SetsUser)
    @Locked('{headers.x-tenant}:{user.id}')
    async ofUser(): Promise<string> {
      return this.locks.current().key;
    }

    @Query(() => String)
    async needed(): Promise<string> {
      return 'a schema has to have a query';
    }
  }
  const { app } = await makeApp({ imports: [graphQLModule()], providers: [Resolvers] });
  const contextValue = { req: { headers: { 'x-tenant': 'acme' } } };
  expect((await execute(app, 'mutation { ofUser }', contextValue)).data).toEqual({ ofUser: 'acme:ada' });

  @WebSocketGateway()
  class Gateway {
    constructor(private readonly locks: LockService) {}

    handleConnection(client: object): void {
      Object.assign(client, { user });
    }

    @SubscribeMessage('user')
    @Locked('user:{user.id}')
    async ofUser(): Promise<string> {
      return this.locks.current().key;
    }
  }
  const { ask } = await TRANSPORTS.find(({ type }) => type === 'ws')!.open(Gateway);
  expect(await ask('user')).toBe('user:ada');
});

it('a field resolver is locked where interceptors are turned on for it, and refused where they are not', async () => {
  @ObjectType()
  class Shop {
    @Field()
    name!: string;
  }
  @Resolver(() => Shop)
  class Fields {
    constructor(private readonly locks: LockService) {}

    @Query(() => Shop)
    async shop(): Promise<Shop> {
      return { name: 'corner' };
    }

    @ResolveField(() => String)
    @Locked('stock:{args.sku}')
    async stock(@Args('sku') _sku: string): Promise<string> {
      return this.locks.current().key;
    }
  }
  const ask = async (options: object) => {
    const { app, acquired } = await makeApp({ imports: [graphQLModule(options)], providers: [Fields] });
    return { acquired, ...(await execute(app, '{ shop { stock(sku: "1") } }')) };
  };
  const on = await ask({ fieldResolverEnhancers: ['interceptors'] });
  expect([on.data, on.acquired]).toEqual([{ shop: { stock: 'stock:1' } }, ['stock:1']]);
  const off = await ask({});
  expect(off.errors?.[0]?.message).toContain('needs fieldResolverEnhancers: ["interceptors"]');
  expect(off.acquired).toEqual([]);
});

/** Handlers of messages and sockets that run for longer, and their log. */
@Controller()
@WebSocketGateway()
class Slow implements OnGatewayDisconnect {
  static gate: Gate;
  static ticks: Subject<number>;
  static done: string[];
  constructor(private readonly locks: LockService) {}

  handleDisconnect(): void {
    Slow.done.push('disconnected');
  }

  @SubscribeMessage('slow')
  @Locked('order')
  async slow(): Promise<void> {
    Slow.done.push('began');
    await Slow.gate.opened;
    Slow.done.push('ended');
  }

  @MessagePattern('stream')
  @SubscribeMessage('stream')
  @Locked('order')
  stream(): Observable<number> {
    return Slow.ticks;
  }

  @MessagePattern('fails')
  @Locked('order')
  async fails(): Promise<never> {
    throw new RpcException('of the handler');
  }

  @EventPattern('event.above')
  @Locked('event:{data.id}')
  async above(_data: object): Promise<void> {
    Slow.done.push(this.locks.current().key);
  }

  @Locked('event:{data.id}')
  @EventPattern('event.below')
  async below(_data: object): Promise<void> {
    Slow.done.push(this.locks.current().key);
  }
}

beforeEach(() => {
  Slow.gate = new Gate();
  Slow.ticks = new Subject();
  Slow.done = [];
});

const streams = () => until(() => Slow.ticks.observed, { what: 'the stream runs' });
const free = (locks: LockService) => until(async () => !(await locks.isLocked('order')), { what: 'the lock is free' });

it('handlers of events are locked, an error of a handler is passed on, and a stream is sent as it comes, under its lock', async () => {
  const { client, locks } = await makeRpcApp({ controllers: [Slow] });
  for (const [id, pattern] of ['event.above', 'event.below'].entries()) client.emit(pattern, { id });
  await until(() => Slow.done.length === 2, { what: 'both events were handled' });
  expect(Slow.done.sort()).toEqual(['event:0', 'event:1']);

  await expect(lastValueFrom(client.send('fails', ''))).rejects.toMatchObject({ message: 'of the handler' });
  const answers: number[] = [];
  const sent = client.send<number>('stream', '').pipe(tap((answer) => answers.push(answer)));
  const all = lastValueFrom(sent.pipe(toArray()));
  await streams();
  Slow.ticks.next(1);
  await until(() => answers.length === 1, { what: 'the first value came' });
  expect(await locks.isLocked('order')).toBe(true);
  Slow.ticks.next(2);
  Slow.ticks.complete();
  expect(await all).toEqual([1, 2]);
  await free(locks);
});

it.each([
  ['slow', true, ['began', 'disconnected', 'ended']],
  ['stream', false, ['disconnected']],
])('the lock of a socket that is gone stays until its handler is done: %s', async (event, isHeld, done) => {
  const { url, locks } = await startApp({ providers: [Slow] }, undefined, (app) =>
    app.useWebSocketAdapter(new WsAdapter(app)),
  );
  const socket = new WebSocket(url.replace('http', 'ws'));
  await once(socket, 'open');
  socket.send(JSON.stringify({ event }));
  await until(() => Slow.done.includes('began') || Slow.ticks.observed, { what: 'the handler runs' });
  expect(await locks.isLocked('order')).toBe(true);
  socket.terminate();
  await until(() => Slow.done.includes('disconnected'), { what: 'the server knows' });
  expect(await locks.isLocked('order')).toBe(isHeld);
  Slow.gate.open();
  await free(locks);
  expect([Slow.ticks.observed, Slow.done]).toEqual([false, done]);
});
