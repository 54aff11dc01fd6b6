import { once } from 'node:events';
import { Inject, UseGuards, type CanActivate, type ExecutionContext, type Type } from '@nestjs/common';
import { GqlExecutionContext, Mutation, Query, Resolver } from '@nestjs/graphql';
import { WsAdapter } from '@nestjs/platform-ws';
import { SubscribeMessage, WebSocketGateway, type OnGatewayDisconnect } from '@nestjs/websockets';
import { fromContext, Limited, Locked, lockKey, LockService } from 'nest-redis-lock';
import { Subject, type Observable } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { execute, graphQLModule } from '../support/graphql.js';
import { makeApp, startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { ALONE, TRANSPORTS, type Transport } from './transports.js';

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

describe.each([...TRANSPORTS, ALONE])('handlers of $name', (transport) => {
  it('hold their lock, or their permit, once, whichever decorator is above and however the key is written', async () => {
    const { handlers, keys } = spelled(transport);
    const { ask, acquired } = await transport.open(handlers);
    const answers = new Map<string, unknown>();
    for (const name of keys.keys()) answers.set(name, await ask(name, { id: 'a:b' }));
    expect(answers).toEqual(keys);
    expect(acquired).toEqual([...keys.values()]);
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

it('the lock of a socket that is gone is given back when its stream is unsubscribed from', async () => {
  const ticks = new Subject<number>();
  let isGone = false;
  @WebSocketGateway()
  class Feed implements OnGatewayDisconnect {
    handleDisconnect(): void {
      isGone = true;
    }

    @SubscribeMessage('stream')
    @Locked('order')
    stream(): Observable<number> {
      return ticks;
    }
  }
  const { url, locks } = await startApp({ providers: [Feed] }, undefined, (app) =>
    app.useWebSocketAdapter(new WsAdapter(app)),
  );
  const socket = new WebSocket(url.replace('http', 'ws'));
  await once(socket, 'open');
  socket.send(JSON.stringify({ event: 'stream' }));
  await until(() => ticks.observed, { what: 'the handler runs' });
  expect(await locks.isLocked('order')).toBe(true);
  socket.terminate();
  await until(() => isGone, { what: 'the server knows' });
  await until(async () => !(await locks.isLocked('order')), { what: 'the lock is free' });
  expect(ticks.observed).toBe(false);
});
