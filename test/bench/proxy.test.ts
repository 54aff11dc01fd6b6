import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { until } from '../support/until.js';

interface Proxy {
  port: number;
  delayMs: number;
  isHole: boolean;
  isDeaf: boolean;
  cutAll(): void;
  cutNext(what: 'request' | 'reply', text: string): Promise<void>;
  heal(): void;
}

const { startProxy } = (await import(new URL('../../bench/faults/proxy.mjs', import.meta.url).href)) as {
  startProxy(target: number): Promise<Proxy>;
};

let server: Server;
let proxy: Proxy;
/** What the server has received. */
let received = '';

beforeEach(async () => {
  received = '';
  const sockets = new Set<Socket>();
  server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (data) => {
      received += String(data);
      socket.write(data);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  proxy = await startProxy(portOf(server));
  return () => {
    proxy.cutAll();
    for (const socket of sockets) socket.destroy();
    server.close();
  };
});

const portOf = (listener: Server) => (listener.address() as AddressInfo).port;

/** A client, and what it has received. */
async function client(port = proxy.port): Promise<{ heard: string; isClosed: boolean; send(text: string): void }> {
  const socket = connect(port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  const seen = { heard: '', isClosed: false, send: (text: string) => void socket.write(text) };
  socket.on('data', (data) => (seen.heard += String(data)));
  socket.on('error', () => {});
  socket.on('close', () => (seen.isClosed = true));
  return seen;
}

const echoed = (seen: { heard: string }, text: string) =>
  until(() => seen.heard.endsWith(text), { what: `${text} has come back` });

describe('the network of the benchmark of faults', () => {
  it('passes on in order what it delays', async () => {
    const one = await client();
    proxy.delayMs = 20;
    one.send('a');
    proxy.delayMs = 1;
    one.send('b');
    await echoed(one, 'b');
    expect(one.heard).toBe('ab');
  });

  it('has nothing come through a hole before it heals, and then everything', async () => {
    const [one, other] = [await client(), await client()];
    one.send('before');
    await echoed(one, 'before');
    proxy.isHole = true;
    one.send(' amid');
    other.send('other');
    const direct = await client(portOf(server));
    direct.send(' direct');
    await echoed(direct, ' direct');
    expect([received, other.heard]).toEqual(['before direct', '']);
    proxy.heal();
    await echoed(one, ' amid');
    await echoed(other, 'other');
  });

  it('has a client that listens already hear nothing more, and others hear', async () => {
    const one = await client();
    one.send('SUBSCRIBE');
    await echoed(one, 'SUBSCRIBE');
    proxy.isDeaf = true;
    const other = await client();
    one.send('deaf');
    await until(() => received.endsWith('deaf'), { what: 'the server has it' });
    other.send('SUBSCRIBE too');
    await echoed(other, 'SUBSCRIBE too');
    expect(one.heard).toBe('SUBSCRIBE');
  });

  it.each([
    ['request', ''],
    ['reply', 'take the lock'],
  ] as const)('cuts the connection of the next %s with a text: the server has received %o', async (what, has) => {
    const [one, other] = [await client(), await client()];
    const cut = proxy.cutNext(what, 'lock');
    one.send('take the lock');
    await cut;
    await until(() => one.isClosed, { what: 'the client learns of it' });
    expect([received, one.heard]).toEqual([has, '']);
    other.send('take the lock');
    await echoed(other, 'lock');
  });
});
