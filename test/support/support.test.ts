import { once } from 'node:events';
import { createServer } from 'node:net';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { candidatePort } from '../../servers/candidate-port.js';
import { RedisServer } from './redis-server.js';
import { TcpProxy } from './tcp-proxy.js';
import { until } from './until.js';

const client = (port: number): Redis =>
  new Redis(port, '127.0.0.1', { retryStrategy: () => null, maxRetriesPerRequest: 0 }).on('error', () => {});

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe('RedisServer', () => {
  let server: RedisServer;
  beforeEach(async () => {
    server = await RedisServer.start();
  });
  afterEach(() => server.stop());

  it('answers as soon as it has started', async () => {
    expect(await server.command('PING')).toBe('PONG');
  });

  it('lists its keys and counts its commands', async () => {
    await server.command('SET', 'b', 1);
    await server.command('SET', 'a', 1);
    expect(await server.keys()).toEqual(['a', 'b']);
    expect(await server.keys('a*')).toEqual(['a']);
    expect(await server.calls()).toMatchObject({ set: 2, keys: 2 });
    await server.resetCalls();
    expect(await server.calls()).not.toHaveProperty('set');
  });

  it('allows DEBUG', async () => {
    expect(await server.command('DEBUG', 'SLEEP', 0)).toBe('OK');
  });

  it('does not answer while paused and answers after resume', async () => {
    const redis = client(server.port);
    await redis.ping();
    server.pause();
    let answered = false;
    const answer = redis.ping().then(() => (answered = true));
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(answered).toBe(false);
    server.resume();
    await answer;
    redis.disconnect();
  });

  it('is empty after a restart on the same port', async () => {
    const { port, pid } = server;
    await server.command('SET', 'key', 1);
    await server.restart();
    expect(server.port).toBe(port);
    expect(server.pid).not.toBe(pid);
    expect(await server.keys()).toEqual([]);
  });

  it('rejects commands while dead and serves them after a restart', async () => {
    await server.kill();
    await expect(server.command('PING')).rejects.toThrow('Connection is closed');
    await server.restart();
    expect(await server.command('PING')).toBe('PONG');
  });

  it('leaves no process behind, even when it stops twice or while paused', async () => {
    server.pause();
    await Promise.all([server.stop(), server.stop()]);
    expect(isRunning(server.pid)).toBe(false);
  });

  it('says what redis-server printed when it does not start', async () => {
    await expect(RedisServer.start({ args: ['--no-such-setting', '1'] })).rejects.toThrow('no-such-setting');
    await expect(RedisServer.start({ port: server.port })).rejects.toThrow('Address already in use');
  });
});

describe('TcpProxy', () => {
  let server: RedisServer;
  let proxy: TcpProxy;
  let redis: Redis;
  beforeEach(async () => {
    server = await RedisServer.start();
    proxy = await TcpProxy.start(server.port);
    redis = client(proxy.port);
    await redis.ping();
  });
  afterEach(async () => {
    redis.disconnect();
    await proxy.stop();
    await server.stop();
  });

  it('forwards both ways', async () => {
    await redis.set('key', 'x'.repeat(1_000_000));
    expect(await redis.get('key')).toHaveLength(1_000_000);
  });

  it('cuts a connection after its request has run, so that the reply is lost', async () => {
    const happened = proxy.cutAfterRequest('INCR');
    await expect(redis.incr('counter')).rejects.toThrow();
    await happened;
    expect(await server.command('GET', 'counter')).toBe('1');
  });

  it('cuts only the request that matches', async () => {
    const happened = proxy.cutAfterRequest(/second/);
    const replies = Promise.allSettled([redis.set('first', 1), redis.set('second', 2)]);
    await happened;
    await replies;
    expect(await server.keys()).toEqual(['first', 'second']);
    const again = client(proxy.port);
    expect(await again.set('second', 3)).toBe('OK');
    again.disconnect();
  });

  it('cuts all connections at once', async () => {
    const other = client(proxy.port);
    await other.ping();
    proxy.cut();
    await until(() => redis.status === 'end' && other.status === 'end', {
      what: 'both clients have lost their connection',
    });
  });

  it('drops replies while requests still run', async () => {
    proxy.dropReplies();
    const lost = redis.set('key', 'value').catch((error: Error) => error);
    await until(async () => (await server.keys()).length, { what: 'the request has run' });
    proxy.passReplies();
    expect(await lost).toBeInstanceOf(Error);
    const again = client(proxy.port);
    expect(await again.get('key')).toBe('value');
    again.disconnect();
  });

  it('holds requests until they are released', async () => {
    proxy.hold();
    const answer = redis.set('key', 'value');
    const other = client(proxy.port);
    const otherAnswer = other.ping();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(await server.keys()).toEqual([]);
    proxy.release();
    expect(await answer).toBe('OK');
    expect(await otherAnswer).toBe('PONG');
    other.disconnect();
  });

  it('refuses new connections, keeps the present ones, and accepts again', async () => {
    proxy.refuse();
    await expect(client(proxy.port).ping()).rejects.toThrow();
    expect(await redis.ping()).toBe('PONG');
    await proxy.accept();
    const again = client(proxy.port);
    expect(await again.ping()).toBe('PONG');
    again.disconnect();
  });
});

describe('until', () => {
  it('returns what the condition gave', async () => {
    let calls = 0;
    expect(await until(() => (++calls === 3 ? 'third' : undefined), { what: 'the third call' })).toBe('third');
  });

  it('names what it waited for', async () => {
    await expect(until(() => false, { what: 'pigs fly', timeoutMs: 10 })).rejects.toThrow('in vain until pigs fly');
  });
});

describe('candidatePort', () => {
  it('gives no port again before hundreds of others, and stays clear of the ports of outgoing connections', async () => {
    const ports: number[] = [];
    for (let count = 0; count < 400; count++) ports.push(await candidatePort());
    expect(new Set(ports).size).toBe(400);
    expect(Math.min(...ports)).toBeGreaterThan(10_000);
    expect(Math.max(...ports)).toBeLessThan(20_000);
  });

  it('keeps other processes out of the block of ports that it goes round in', async () => {
    const port = await candidatePort();
    const first = port - (port % 500);
    const another = createServer();
    another.listen({ port: first, host: '127.0.0.1', exclusive: true });
    const [error] = await once(another, 'error');
    expect(error).toMatchObject({ code: 'EADDRINUSE', port: first });
  });
});
