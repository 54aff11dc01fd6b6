import { once } from 'node:events';
import {
  Body,
  Controller,
  Inject,
  Post,
  UseFilters,
  type INestApplication,
  type ModuleMetadata,
  type Type,
} from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { Args, Mutation, Query, Resolver } from '@nestjs/graphql';
import { MessagePattern, Payload } from '@nestjs/microservices';
import { WsAdapter } from '@nestjs/platform-ws';
import { MessageBody, SubscribeMessage, WebSocketGateway } from '@nestjs/websockets';
import { Locked, LockService } from 'nest-redis-lock';
import { lastValueFrom } from 'rxjs';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { execute, graphQLModule } from '../support/graphql.js';
import { HTTP_ADAPTERS, makeApp, post, startApp, type LockOptions, type TestApp } from '../support/nest-app.js';
import { makeRpcApp } from '../support/rpc.js';

/** The answer that a client gets: a value, or what it sees of an error. */
export type Ask = (what: string, data?: { id?: string; mine?: number }) => Promise<unknown>;

/** One way in which requests come, with the decorators of its handlers. */
export interface Transport {
  name: string;
  /** The name that Nest gives it in the context of a request. */
  type: string;
  holder: () => ClassDecorator;
  handler: (name: string) => MethodDecorator;
  argument: (property: string) => ParameterDecorator;
  /** The part of a request that contains what a client sends, in the key of a lock. */
  part: 'body' | 'data' | 'args';
  /** Starts an application with these handlers, and with a filter for all of it. */
  open: (handlers: Type, lock?: LockOptions, filter?: Type) => Promise<TestApp & { ask: Ask }>;
}

function withFilter(filter: Type | undefined, metadata: ModuleMetadata): ModuleMetadata {
  return filter
    ? { ...metadata, providers: [...(metadata.providers ?? []), { provide: APP_FILTER, useClass: filter }] }
    : metadata;
}

const http = HTTP_ADAPTERS.map(([name, makeAdapter]): Transport => ({
  name: `HTTP on ${name}`,
  type: 'http',
  holder: () => Controller(),
  handler: (path) => Post(path),
  argument: (property) => Body(property),
  part: 'body',
  open: async (handlers, lock, filter) => {
    const test = await startApp(withFilter(filter, { controllers: [handlers] }), lock, undefined, makeAdapter());
    const ask: Ask = async (what, data = {}) => {
      const response = await post(`${test.url}/${what}`, data);
      return response.ok ? response.text() : response.json();
    };
    return { ...test, ask };
  },
}));

const rpc = (name: string, inheritAppConfig: boolean): Transport => ({
  name,
  type: 'rpc',
  holder: () => Controller(),
  handler: (pattern) => MessagePattern(pattern),
  argument: (property) => Payload(property),
  part: 'data',
  open: async (handlers, lock, filter) => {
    const metadata = withFilter(filter, { controllers: [handlers] });
    const { client, ...test } = await makeRpcApp(metadata, lock, inheritAppConfig);
    const ask: Ask = (what, data = {}) => lastValueFrom(client.send(what, data)).catch((error: unknown) => error);
    return { ...test, ask };
  },
});

const webSockets: Transport = {
  name: 'WebSockets',
  type: 'ws',
  holder: () => WebSocketGateway(),
  handler: (message) => SubscribeMessage(message),
  argument: (property) => MessageBody(property),
  part: 'data',
  open: async (handlers, lock, filter) => {
    if (filter) UseFilters(filter)(handlers); // Nest does not use filters of the whole application for gateways
    const adapt = (app: INestApplication) => app.useWebSocketAdapter(new WsAdapter(app));
    const test = await startApp({ providers: [handlers] }, lock, adapt);
    const socket = new WebSocket(test.url.replace('http', 'ws'));
    onTestFinished(() => socket.terminate());
    await once(socket, 'open');
    const ask: Ask = async (event, data = {}) => {
      const answer = once(socket, 'message');
      socket.send(JSON.stringify({ event, data }));
      return JSON.parse(String((await answer)[0]));
    };
    return { ...test, ask };
  },
};

@Resolver()
class Needed {
  @Query(() => String)
  async needed(): Promise<string> {
    return 'a schema has to have a query';
  }
}

const graphQL: Transport = {
  name: 'GraphQL',
  type: 'graphql',
  holder: () => Resolver(),
  handler: (name) => Mutation(() => String, { name, nullable: true }),
  argument: (name) => Args(name, { type: () => String, nullable: true }),
  part: 'args',
  open: async (handlers, lock, filter) => {
    const metadata = { imports: [graphQLModule()], providers: [Needed, handlers] };
    const test = await makeApp(withFilter(filter, metadata), lock);
    const ask: Ask = async (what, { id } = {}) => {
      const call = id === undefined ? what : `${what}(id: ${JSON.stringify(id)})`;
      const { data, errors } = await execute(test.app, `mutation { ${call} }`);
      return errors ? JSON.parse(JSON.stringify(errors)) : data![what]; // as it is sent
    };
    return { ...test, ask };
  },
};

export const TRANSPORTS: Transport[] = [...http, rpc('RPC', true), webSockets, graphQL];

export const ALONE = rpc('RPC that does not inherit the configuration of its application', false);

/** Handlers whose lock may be held, whose request may lack its key, and one that loses its lock. */
export function ordersOf({ holder, handler, argument, part }: Transport): Type {
  @holder()
  class Orders {
    constructor(@Inject(LockService) private readonly locks: LockService) {}

    @handler('busy')
    @Locked('secret-key', { waitMs: 0 })
    async busy(): Promise<void> {}

    @handler('keyed')
    @Locked(`order:{${part}.id}`)
    async keyed(@argument('id') _id?: string): Promise<void> {}

    @handler('loses')
    @Locked('secret-key')
    async loses(): Promise<string> {
      await this.locks.forceRelease('secret-key');
      return 'written';
    }
  }
  return Orders;
}
