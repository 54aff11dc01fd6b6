import { once } from 'node:events';
import { WsAdapter } from '@nestjs/platform-ws';
import { MessageBody, SubscribeMessage, WebSocketGateway, type OnGatewayDisconnect } from '@nestjs/websockets';
import { Locked, LockService } from 'nest-redis-lock';
import { Subject, type Observable } from 'rxjs';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { Gate } from '../support/gate.js';
import { startApp, type TestApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

let gate: Gate;
let done: string[];
let ticks: Subject<number>;
beforeEach(() => {
  gate = new Gate();
  done = [];
  ticks = new Subject();
});

interface Answer {
  event: string;
  data: unknown;
}

@WebSocketGateway()
class Gateway implements OnGatewayDisconnect {
  constructor(private readonly locks: LockService) {}

  handleConnection(client: { user?: unknown }): void {
    client.user = { id: 'ada' };
  }

  handleDisconnect(): void {
    done.push('disconnected');
  }

  @SubscribeMessage('above')
  @Locked('room:{data.room}')
  async above(@MessageBody() _data: object): Promise<Answer> {
    return { event: 'answer', data: this.locks.current().key };
  }

  @Locked('room:{data.room}')
  @SubscribeMessage('below')
  async below(@MessageBody() _data: object): Promise<Answer> {
    return { event: 'answer', data: this.locks.current().key };
  }

  @SubscribeMessage('user')
  @Locked('user:{user.id}', { waitMs: 0 })
  async user(): Promise<Answer> {
    return { event: 'answer', data: this.locks.current().key };
  }

  @SubscribeMessage('slow')
  @Locked('room:slow')
  async slow(): Promise<Answer> {
    done.push('began');
    await gate.opened;
    done.push('ended');
    return { event: 'answer', data: 'slow' };
  }

  @SubscribeMessage('stream')
  @Locked('room:stream')
  stream(): Observable<number> {
    return ticks;
  }
}

async function connect(): Promise<
  TestApp & { socket: WebSocket; ask: (event: string, data?: unknown) => Promise<Answer> }
> {
  const test = await startApp({ providers: [Gateway] }, undefined, (app) =>
    app.useWebSocketAdapter(new WsAdapter(app)),
  );
  const socket = new WebSocket(test.url.replace('http', 'ws'));
  onTestFinished(() => socket.terminate());
  await once(socket, 'open');
  const ask = async (event: string, data?: unknown) => {
    const answer = once(socket, 'message');
    socket.send(JSON.stringify({ event, data }));
    return JSON.parse(String((await answer)[0])) as Answer;
  };
  return { ...test, socket, ask };
}

it('locks handlers of a gateway, with the decorators in either order', async () => {
  const { ask, acquired } = await connect();
  expect(await ask('above', { room: 'a' })).toEqual({ event: 'answer', data: 'room:a' });
  expect(await ask('below', { room: 'b' })).toEqual({ event: 'answer', data: 'room:b' });
  expect(acquired).toEqual(['room:a', 'room:b']);
});

it('makes the key of the user of the socket', async () => {
  const { ask } = await connect();
  expect(await ask('user')).toMatchObject({ data: 'user:ada' });
});

it('tells the client nothing but that it failed, when the lock is held or the message has no key [Nest 12]', async () => {
  const { ask, locks, acquired } = await connect();
  await using _held = await locks.acquire('user:ada');
  const failed = { status: 'error', message: 'Internal server error' };
  expect(await ask('user')).toMatchObject({ event: 'exception', data: failed });
  expect(JSON.stringify(await ask('user'))).not.toContain('ada');
  expect(await ask('above', { room: '' })).toMatchObject({ event: 'exception', data: failed });
  expect(acquired).toEqual(['user:ada']);
});

it('holds the lock until the handler is done when the client is gone', async () => {
  const { locks, socket } = await connect();
  socket.send(JSON.stringify({ event: 'slow' }));
  await until(() => done.includes('began'), { what: 'the handler runs' });
  socket.terminate();
  await until(() => done.includes('disconnected'), { what: 'the server knows' });
  expect(await locks.isLocked('room:slow')).toBe(true);
  gate.open();
  await until(async () => !(await locks.isLocked('room:slow')), { what: 'the lock is free' });
  expect(done).toEqual(['began', 'disconnected', 'ended']);
});

it('ends a stream, and gives its lock back, when the client is gone', async () => {
  const { locks, socket } = await connect();
  socket.send(JSON.stringify({ event: 'stream' }));
  await until(() => ticks.observed, { what: 'the stream runs' });
  expect(await locks.isLocked('room:stream')).toBe(true);
  socket.terminate();
  await until(async () => !(await locks.isLocked('room:stream')), { what: 'the lock is free' });
  expect(ticks.observed).toBe(false);
});
