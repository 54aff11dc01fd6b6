import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const request = new AsyncLocalStorage<string>();

/** The commands that ioredis sends: how many locks each is for, and the request in whose context it is sent. */
function commandsSent() {
  const sent: { locks: number; in?: string }[] = [];
  const note = (message: unknown) => {
    const { command, args } = message as { command: string; args: string[] };
    if (command === 'evalsha')
      sent.push({ locks: args.filter((arg) => /^lock:\{.*\}$/.test(arg)).length, in: request.getStore() });
  };
  subscribe('tracing:ioredis:command:start', note);
  onTestFinished(() => void unsubscribe('tracing:ioredis:command:start', note));
  return sent;
}

it('sends what it gathers of several calls in the trace of none of them, and a lone command in that of its call [G454]', async () => {
  const locks = await openLocks({ redis: server.url });
  const sent = commandsSent();
  const held = await Promise.all(
    ['A', 'B', 'C'].map((name) => request.run(name, () => locks.acquire(`of:${name}`))), // A goes alone, B and C behind it
  );
  await Promise.all(held.map((lock) => lock.release()));
  expect(sent.slice(0, 2)).toEqual([
    { locks: 1, in: 'A' },
    { locks: 2, in: undefined },
  ]);
  await request.run('D', () => locks.withLock('d', () => Promise.resolve()));
  expect(sent.slice(-2)).toEqual([
    { locks: 1, in: 'D' },
    { locks: 1, in: 'D' },
  ]);
});

it('extends leases in the trace of no call [G455]', async () => {
  const locks = await openLocks({ redis: server.url, ttlMs: 90 });
  const first = await request.run('A', () => locks.acquire('first'));
  const second = await request.run('B', () => locks.acquire('second'));
  const sent = commandsSent();
  await until(() => sent.length >= 3, { what: 'some extensions' });
  expect(sent.map((command) => command.in)).toEqual(sent.map(() => undefined));
  await Promise.all([first.release(), second.release()]);
});
