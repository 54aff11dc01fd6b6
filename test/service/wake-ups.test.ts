import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CHECK_MS } from '../../lib/core/waiting/bid.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { until } from '../support/until.js';
import { hadAtItsEnd } from './had-at-its-end.js';

const EXTENSIONS = 100;

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

const open = () => openLocks({ redis: server.url });

it('a lock whose lease nobody extends and nobody releases is had right at the end of its ttl', async () => {
  const [locks, others] = [await open(), await open()];
  const ttlMs = 3_300; // no multiple of the time between two checks, which would find the lock ended, too
  const lost = await others.acquire('not-kept', { ttlMs, watchdog: false });
  const waiting = locks.acquire('not-kept');
  await untilQueued(server, 'not-kept', 1);
  await hadAtItsEnd(server, 'not-kept', waiting);
  expect(lost.isHeld).toBe(false);
});

describe('who waits', () => {
  it('is not woken by the extensions of the holder: it looks once a second', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('extended');
    const waiting = locks.acquire('extended', { waitMs: 60_000 });
    const lastSign = async () => String(await server.command('ZRANGE', 'lock:{extended}:queue', 0, 0)).charAt(0);
    await until(async () => (await lastSign()) === 'h', { what: 'it waits for messages' });
    const from = performance.now();
    await server.resetCalls();
    for (let extensions = 0; extensions < EXTENSIONS; extensions++) {
      await holder.extend();
      await sleep(20);
    }
    const looks = (await scriptCalls(server)) - EXTENSIONS;
    expect(looks).toBeLessThan(2 + (performance.now() - from) / (0.9 * CHECK_MS));
    await holder.release();
    await (await waiting).release();
  });

  it('for many keys is woken for the one that is released', async () => {
    const [locks, others] = [await open(), await open()];
    const keys = Array.from({ length: 50 }, (_, index) => `one-of-many ${index}`);
    const held = await Promise.all(keys.map((key) => others.acquire(key)));
    const order: string[] = [];
    const calls = keys.map((key) => locks.withLock(key, () => void order.push(key)));
    for (const key of keys) await untilQueued(server, key, 1);
    const shuffled = held.map((_, index) => held[(index * 17) % 50]!);
    for (const [index, lock] of shuffled.entries()) {
      await lock.release();
      await calls[keys.indexOf(lock.key)];
      expect(order).toHaveLength(index + 1);
    }
    expect(order).toEqual(shuffled.map(({ key }) => key));
  });
});
