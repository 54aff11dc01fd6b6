import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { candidatePort } from '../../servers/candidate-port.js';
import { RedisServer } from './redis-server.js';

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

describe('candidatePort', () => {
  it('gives no port again before hundreds of others, and stays clear of the ports of outgoing connections', async () => {
    const ports: number[] = [];
    for (let count = 0; count < 400; count++) ports.push(await candidatePort());
    expect(new Set(ports).size).toBe(400);
    expect(Math.min(...ports)).toBeGreaterThan(10_000);
    expect(Math.max(...ports)).toBeLessThan(20_000);
  });

  it('keeps other processes out of the block of ports that it uses in turn', async () => {
    const port = await candidatePort();
    const first = port - (port % 500);
    const another = createServer();
    another.listen({ port: first, host: '127.0.0.1', exclusive: true });
    const [error] = await once(another, 'error');
    expect(error).toMatchObject({ code: 'EADDRINUSE', port: first });
  });
});
