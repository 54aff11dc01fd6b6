import {
  Controller,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { EventPattern, MessagePattern, Payload, RpcException, type ClientProxy } from '@nestjs/microservices';
import { fromContext, Locked, LockService } from 'nest-redis-lock';
import { lastValueFrom, of, startWith, Subject, tap, toArray, type Observable } from 'rxjs';
import { beforeEach, expect, it } from 'vitest';
import { makeRpcApp } from '../support/rpc.js';
import { until } from '../support/until.js';

let seen: string[];
let ticks: Subject<number>;
beforeEach(() => {
  seen = [];
  ticks = new Subject();
});

class Notes implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(tap(() => seen.push('committed')));
  }
}

class StartsWithZero implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(startWith(0));
  }
}

@Controller()
class Messages {
  constructor(private readonly locks: LockService) {}

  @MessagePattern('above')
  @UseInterceptors(Notes)
  @Locked('order:{data.order.id}')
  async above(@Payload() _data: object): Promise<string> {
    return this.locks.current().key;
  }

  @Locked('order:{data.order.id}')
  @MessagePattern('below')
  @UseInterceptors(Notes)
  async below(@Payload() _data: object): Promise<string> {
    return this.locks.current().key;
  }

  @MessagePattern('plain')
  @Locked('order:{data}', { waitMs: 0 })
  async plain(@Payload() _data: string): Promise<string> {
    return this.locks.current().key;
  }

  @MessagePattern('context')
  @Locked(fromContext((context) => `${context.getType()}:${context.switchToRpc().getData()}`))
  async context(): Promise<string> {
    return this.locks.current().key;
  }

  @MessagePattern('argument')
  @Locked('argument:{0.id}')
  async argument(@Payload() _data: { id: string }): Promise<string> {
    return this.locks.current().key;
  }

  @MessagePattern('fails')
  @Locked('order')
  async fails(): Promise<never> {
    throw new RpcException('of the handler');
  }

  @MessagePattern('loses')
  @Locked('order')
  async loses(): Promise<string> {
    await this.locks.forceRelease('order');
    return 'written';
  }

  @MessagePattern('stream')
  @Locked('order')
  stream(): Observable<number> {
    return ticks;
  }

  @MessagePattern('started')
  @UseInterceptors(StartsWithZero)
  @Locked('order')
  started(): Observable<number> {
    return of(1, 2);
  }

  @EventPattern('event.above')
  @Locked('event:{data.id}')
  async eventAbove(_data: object): Promise<void> {
    seen.push(this.locks.current().key);
  }

  @Locked('event:{data.id}')
  @EventPattern('event.below')
  async eventBelow(_data: object): Promise<void> {
    seen.push(this.locks.current().key);
  }
}

const serve = (inheritAppConfig = false) => makeRpcApp({ controllers: [Messages] }, undefined, inheritAppConfig);

const send = (client: ClientProxy, pattern: string, data: unknown) => lastValueFrom(client.send<string>(pattern, data));

it.each([
  ['of a hybrid application that does not inherit its configuration', false],
  ['of a hybrid application that inherits its configuration', true],
])('locks handlers %s, with the decorators in either order', async (_what, inheritAppConfig) => {
  const { client, acquired } = await serve(inheritAppConfig);
  expect(await send(client, 'above', { order: { id: 1 } })).toBe('order:1');
  expect(await send(client, 'below', { order: { id: 2 } })).toBe('order:2');
  expect([acquired, seen]).toEqual([
    ['order:1', 'order:2'],
    ['committed', 'committed'],
  ]);
});

it('makes the key of a message that is a value, of the context, of an argument', async () => {
  const { client, acquired } = await serve();
  expect(await send(client, 'plain', '7:a')).toBe('order:7%3Aa');
  expect(await send(client, 'context', 'x')).toBe('rpc:x');
  expect(await send(client, 'argument', { id: 5 })).toBe('argument:5');
  expect(acquired).toHaveLength(3);
});

it('locks handlers of events, with the decorators in either order', async () => {
  const { client } = await serve();
  client.emit('event.above', { id: 1 });
  client.emit('event.below', { id: 2 });
  await until(() => seen.length === 2, { what: 'both events were handled' });
  expect(seen.sort()).toEqual(['event:1', 'event:2']);
});

it('passes the error of the handler on', async () => {
  const { client, locks } = await serve();
  await expect(send(client, 'fails', '')).rejects.toMatchObject({ message: 'of the handler' });
  expect(await locks.isLocked('order')).toBe(false);
});

it('tells the client nothing but that it failed, when the lock is held or the message has no key', async () => {
  const { client, locks, log } = await serve();
  await using _held = await locks.acquire('order:7');
  const answer = { status: 'error', message: 'Internal server error' };
  await expect(send(client, 'plain', '7')).rejects.toEqual(answer);
  await expect(send(client, 'above', {})).rejects.toEqual(answer);
  expect(log.lines.join()).toContain('Lock "order:7" is held by pid');
  expect(log.lines.join()).toContain('{data.order.id} is not in the request');
  expect(seen).toEqual([]);
});

it('does not send the result of a handler that lost its lock', async () => {
  const { client } = await serve();
  const answers: unknown[] = [];
  await expect(
    lastValueFrom(client.send('loses', '').pipe(tap((answer) => answers.push(answer)))),
  ).rejects.toMatchObject({ status: 'error' });
  expect(answers).toEqual([]);
});

it('holds the lock of a stream until it has ended, and sends its values as they come', async () => {
  const { client, locks } = await serve();
  const answers: number[] = [];
  const all = lastValueFrom(
    client.send<number>('stream', '').pipe(
      tap((answer) => answers.push(answer)),
      toArray(),
    ),
  );
  await until(() => ticks.observed, { what: 'the stream runs' });
  ticks.next(1);
  await until(() => answers.length === 1, { what: 'the first value came' });
  expect(await locks.isLocked('order')).toBe(true);
  ticks.next(2);
  ticks.complete();
  expect(await all).toEqual([1, 2]);
  await until(async () => !(await locks.isLocked('order')), { what: 'the lock is free' });
});

it('keeps the order of values that come before the stream of the handler', async () => {
  const { client } = await serve();
  expect(await lastValueFrom(client.send('started', '').pipe(toArray()))).toEqual([0, 1, 2]);
});
