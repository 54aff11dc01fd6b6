import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, expect, onTestFinished } from 'vitest';
import { readMessage, type Message } from '../../lib/stores/node/messages.js';
import { WITHDRAW } from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { until } from '../support/until.js';

// What the tests of the scripts share.

export * from '../../lib/stores/redis/scripts/lua.js';
export { NOT_LISTENING, LISTENING, queueEntry, UNVERIFIED } from '../../lib/stores/redis/node/lock-keys.js';
export { ScriptFault } from '../../lib/stores/redis/scripts/script-fault.js';
export { ScriptRunner, type Message, type Reply, type Script };

export const FENCE = 'lock:fence';
/** Ahead of the clock of any server until the year 2223. */
export const AHEAD = 8e15;
/** A lock of the tests, its queue, the keys of its scripts, and the token of an earlier grant. */
export const [LOCK, QUEUE] = ['lock:{k}', 'lock:{k}:queue'] as const;
export const KEYS = [FENCE, LOCK, QUEUE];
export const TTL_MS = 30_000;
export const TOKEN = '1700000000000000';
/** The channel on which a test listens. */
export const CHANNEL = 'inbox:alive';

export let server: RedisServer;
export let client: Redis;
export let runner: ScriptRunner;
/** The messages to the channel. */
export const heard: Message[] = [];

/** Starts a server for the tests of a file. */
export function onServer(): void {
  let listener: Redis;
  beforeAll(async () => {
    server = await RedisServer.start();
    [client, listener] = [new Redis(server.url), new Redis(server.url)];
    await client.ping();
    runner = new ScriptRunner(portOf(client), 30_000);
    listener.on('message', (_channel, text) => void heard.push(readMessage(text)));
    await listener.subscribe(CHANNEL);
  });
  beforeEach(async () => {
    await client.flushall();
    heard.length = 0;
  });
  afterAll(async () => {
    client.disconnect();
    listener.disconnect();
    await server.stop();
  });
}

export function run(script: Script, keys: readonly string[], ...args: (string | number)[]): Promise<Reply> {
  return runScript(runner, script, keys, args);
}

/** A runner of a user with these rights. */
export async function runnerWith(...rights: string[]): Promise<ScriptRunner> {
  await client.call('ACL', 'SETUSER', 'other', 'reset', 'on', 'nopass', ...rights);
  const other = new Redis({ port: server.port, host: '127.0.0.1', username: 'other', password: 'any' });
  onTestFinished(() => other.disconnect());
  await other.ping();
  return new ScriptRunner(portOf(other), 30_000);
}

/** The places in the queue of the lock, without the signs of processes. */
export function queue(): Promise<string[]> {
  return client.zrange(QUEUE, '0', '+inf', 'BYSCORE');
}

/** Waits until these are notified, and nobody else. */
export async function told(...tickets: string[]): Promise<void> {
  await until(() => heard.length >= tickets.length, { what: 'they are notified' });
  expect(heard.map(({ ticket }) => ticket)).toEqual(tickets);
}

export function withdraw(ticket: string, entry: string): Promise<Reply> {
  return run(WITHDRAW, KEYS, `${ticket}@`, entry);
}

export async function timeUs(): Promise<number> {
  const [seconds, micros] = await client.time();
  return Number(seconds) * 1_000_000 + Number(micros);
}

/** While the server accepts no writes that need memory. */
export async function whileFull<T>(ask: () => Promise<T>): Promise<T> {
  await client.config('SET', 'maxmemory', 1);
  return ask().finally(() => client.config('SET', 'maxmemory', 0));
}
