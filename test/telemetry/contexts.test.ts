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

/** Commands of both clients; node-redis does not report a subscription, but the connection that it makes for it. */
const CHANNELS = [
  'tracing:ioredis:command:start',
  'tracing:node-redis:command:start',
  'tracing:node-redis:connect:start',
];

interface Traced {
  command?: string;
  args?: string[];
  serverPort: number;
}

/**
 * The commands of the Redis client: for how many locks each command is, and the request in whose context it is sent.
 */
function commandsSent() {
  const sent: { locks: number; in?: string }[] = [];
  const others: { command: string; in?: string }[] = [];
  const note = (message: unknown) => {
    const { command = 'connect', args = [], serverPort } = message as Traced;
    if (serverPort !== server.port) return; // from a client that another file has left
    const isScript = command.toLowerCase() === 'evalsha';
    if (!isScript) others.push({ command: command.toLowerCase(), in: request.getStore() });
    else sent.push({ locks: args.filter((arg) => /^lock:\{.*\}$/.test(arg)).length, in: request.getStore() });
  };
  for (const channel of CHANNELS) subscribe(channel, note);
  onTestFinished(() => CHANNELS.forEach((channel) => unsubscribe(channel, note)));
  return Object.assign(sent, { others });
}

it('sends commands for several calls in the trace of none of them, and a single command in the trace of its call [G454]', async () => {
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
  const locks = await openLocks({ redis: server.url, ttlMs: 300 });
  const first = await request.run('A', () => locks.acquire('first'));
  const second = await request.run('B', () => locks.acquire('second'));
  const sent = commandsSent();
  await until(() => sent.length >= 3, { what: 'some extensions' });
  expect(sent.map((command) => command.in)).toEqual(sent.map(() => undefined));
  await Promise.all([first.release(), second.release()]);
});

it('subscribes, and checks for a call that waits, in the trace of no call [G495]', async () => {
  const [holder, waiter] = await Promise.all([openLocks({ redis: server.url }), openLocks({ redis: server.url })]);
  const held = await holder.acquire('waited for');
  const sent = commandsSent();
  const waiting = request.run('A', () => waiter.acquire('waited for'));
  await until(() => sent.others.some(({ command }) => /^(subscribe|connect)$/.test(command)), {
    what: 'it subscribes',
  });
  await until(() => sent.some((command) => command.in === undefined), { what: 'a check outside of the call' });
  const subscriber = sent.others.filter(({ command }) => command !== 'eval'); // the script of the call, if it is not known yet
  expect(subscriber.map((command) => command.in)).toEqual(subscriber.map(() => undefined));
  await held.release();
  await (await waiting).release();
});

it('repeats a release in the trace of no call, also when the late answer to one shows that the server answers again [G496]', async () => {
  const locks = await openLocks({ redis: server.url, commandTimeoutMs: 300 });
  const lock = await locks.acquire('k');
  const sent = commandsSent();
  const failures: string[] = [];
  locks.events$.subscribe(({ type }) => failures.push(type));
  server.pause();
  await request.run('A', () => lock.release());
  const tried = sent.length;
  server.resume();
  await until(() => sent.length > tried, { what: 'the release is repeated' });
  expect(sent[tried]).toEqual({ locks: 1, in: undefined });
  expect(failures).toContain('release-failed');
});
