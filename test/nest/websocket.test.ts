import { once } from 'node:events';
import { WsAdapter } from '@nestjs/platform-ws';
import { MessageBody, SubscribeMessage, WebSocketGateway, type OnGatewayDisconnect } from '@nestjs/websockets';
import { Locked, LockService } from 'nest-redis-lock';
import { Subject, type Observable } from 'rxjs';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { Gate } from '../support/gate.js';
import { startApp, type TestApp } from '../support/nest-app.js';

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

it('makes the key of the user of the socket', async () => {
  const { ask } = await connect();
  expect(await ask('user')).toMatchObject({ data: 'user:ada' });
});
