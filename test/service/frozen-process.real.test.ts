import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

// As functions are frozen between two invocations.

/** Time enough on a machine that does other work. */
const COMMAND_MS = 20_000;

let server: RedisServer;
let proxy: TcpProxy;
beforeEach(async () => {
  server = await RedisServer.start();
  onTestFinished(() => server.stop());
  proxy = await TcpProxy.start(server.port);
  onTestFinished(() => proxy.stop());
});

const once = { waiters: 1, turns: 1 };

describe('A process that is frozen between two calls', () => {
  it('locks again when it goes on, though its connections were closed meanwhile [G926]', async () => {
    const a = await LockProcess.start({ redis: proxy.url, commandTimeoutMs: COMMAND_MS });
    const [before] = await a.turns('key', once);
    a.pause();
    proxy.cut();
    await until(() => proxy.present === 0, { what: 'they are closed' });
    a.resume();
    const [after] = await a.turns('key', once);
    expect(after!.fencingToken).toBeGreaterThan(before!.fencingToken);
    expect(await server.keys('lock:{key}')).toEqual([]);
  });

  it('locks again when it goes on, though its connections were dropped without a word [G927]', async () => {
    const a = await LockProcess.start({ redis: proxy.url, commandTimeoutMs: 100 });
    await a.turns('key', once);
    a.pause();
    proxy.hideCloses();
    await server.command('CLIENT', 'KILL', 'TYPE', 'normal');
    a.resume();
    const turn = () => a.turns('key', once).catch(() => undefined);
    await until(turn, { what: 'a call succeeds' });
  });

  it('leaves a lock that it did not give back to others when its ttl is over, and knows when it goes on [G928]', async () => {
    const a = await LockProcess.start({ redis: proxy.url, commandTimeoutMs: COMMAND_MS });
    const b = await openLocks({ redis: server.url, commandTimeoutMs: COMMAND_MS });
    const left = await a.acquire('key', { ttlMs: 1_000, watchdog: false });
    a.pause();
    const lock = await b.acquire('key', { waitMs: 60_000 });
    expect(lock.fencingToken).toBeGreaterThan(left.fencingToken);
    a.resume();
    expect(await a.isHeld('key')).toBe(false);
    expect(await a.release('key')).toBe(false);
    expect(lock.isHeld).toBe(true);
    await lock.release();
  });
});
