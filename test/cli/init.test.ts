import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { NodeError } from 'nest-redis-lock';
import { RedisNode } from '../../lib/stores/redis/node/redis-node.js';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';
import { call, type Surroundings } from './call.js';

/** Longer than any test takes: whoever has to wait for it does not vote in the test. */
const LONG_MS = 120_000;
const commandTimeoutMs = 20_000;

const servers = await Promise.all([1, 2, 3].map(() => serverOfFile()));
beforeEach(() => Promise.all(servers.map((server) => server.command('FLUSHALL'))));
afterEach(() => void vi.restoreAllMocks());

const urls = () => servers.map(({ url }) => url);
const nameOf = (server: RedisServer) => server.url.slice('redis://'.length);
const init = (options: string[] = ['--yes'], surroundings?: Surroundings) =>
  call(['init', '--redlock', urls().join(','), ...options], surroundings);
const admissions = () => Promise.all(servers.map((server) => server.command('GET', 'lock:admission')));
const open = (redlock = urls()) => openLocks({ redlock, ttlMs: LONG_MS, commandTimeoutMs });
/** Has something happen on a node after all were looked at, and before anything is written there. */
const beforeTheWrite = (server: RedisServer, happens: () => Promise<unknown>) => {
  const original = RedisNode.prototype.initialise;
  vi.spyOn(RedisNode.prototype, 'initialise').mockImplementation(async function (this: RedisNode, identity, forMs) {
    if (forMs !== undefined && this.name === nameOf(server)) {
      await happens();
      await until(() => this.isReady, { what: 'the connection stands' });
    }
    return original.call(this, identity, forMs);
  });
};

it('the nodes of a new Redlock vote at once after the command init, whatever the ttl of the application [G485]', async () => {
  await expect((await open()).acquire('before')).rejects.toThrow('votes in');
  await Promise.all(servers.map((server) => server.command('FLUSHALL')));
  expect(await init()).toEqual({
    code: 0,
    out: servers.map((server) => `${nameOf(server)} votes\n`).join(''),
    err: '',
  });
  const locks = await open();
  const lock = await locks.acquire(freshKey());
  expect((await locks.ping()).nodes).toEqual({ voting: 3, of: 3 });
  expect(await lock.release()).toBe(true);
  const day = await openLocks({ redlock: urls(), ttlMs: 86_400_000, commandTimeoutMs });
  await day.acquire(freshKey());
});

it.each([
  ['a lock', ['SET', 'lock:{order:7}', 'a/1/b/2@0000000000000001', 'PX', 60_000]],
  ['a fencing counter', ['SET', 'lock:fence:17', '0000000000000001']],
  ['an admission', ['SET', 'lock:admission', '1 20 another']],
  ['waiters', ['ZADD', 'lock:{order:7}:queue', 1, 'x']],
  ['anything else under the prefix', ['SET', 'lock:', '']],
])(
  'the command init writes nothing when one of the nodes has %s, also if it comes while the question is read',
  async (_what, command) => {
    const [, , third] = servers as [RedisServer, RedisServer, RedisServer];
    const use = () => third.command(...(command as [string, ...string[]]));
    const answer = async () => (await use(), 'y');
    expect(await init([], { answer })).toMatchObject({ code: 1, out: '' });
    const { code, out, err } = await init();
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toContain(`${nameOf(third)}: it has been used, as it has the key ${String(command[1])}`);
    expect((await admissions()).slice(0, 2)).toEqual([null, null]);
  },
);

it('the command init looks at the keys of its prefix, whatever characters that has, and not among more than 100 000', async () => {
  const prefix = 'a*[b]?\\';
  const [first] = servers as [RedisServer];
  await first.command('MSET', 'abb!:admission', 1, 'a*[b]?\\x:y', 1, 'lock:fence', 1, 'aa:{x}', 1);
  expect(await init(['--yes', '--prefix', prefix])).toMatchObject({ code: 0 });
  expect(await first.command('GET', `${prefix}:admission`)).toMatch(/^\d{16} 0 \w{40}$/);
  expect(await init(['--yes', '--prefix', prefix])).toMatchObject({ code: 1 });
  await first.command('FLUSHALL');
  await first.command('DEBUG', 'POPULATE', 110_000, 'foreign', 1);
  expect(await init()).toMatchObject({ code: 1, err: expect.stringContaining('more than 100000 keys') });
});

it('the command init refuses nodes of which one holds a lock of a client that asks for no admission [G486]', async () => {
  const locks = await openLocks({ redlock: urls(), admission: false });
  await locks.acquire(freshKey());
  await servers[0]!.command('FLUSHALL');
  await servers[1]!.command('FLUSHALL');
  expect(await init()).toMatchObject({ code: 1 });
  expect(await admissions()).toEqual([null, null, null]);
});

it('the command init writes nothing unless all nodes answer [G487]', async () => {
  const redlock = [...urls().slice(0, 2), 'redis://127.0.0.1:1'].join(',');
  const { code, err } = await call(['init', '--yes', '--redlock', redlock], { connectMs: 1_000 });
  expect({ code, err }).toEqual({ code: 69, err: expect.stringContaining('ECONNREFUSED') });
  expect(await admissions()).toEqual([null, null, null]);
});

it('a lock that a node grants between the look and the write keeps it from being initialised [G488]', async () => {
  const [first, second, third] = servers as [RedisServer, RedisServer, RedisServer];
  beforeTheWrite(second, () => second.command('SET', 'lock:{x}', 'a/1/b/2@0000000000000001', 'PX', 60_000));
  const { code, out, err } = await init();
  expect(code).toBe(1);
  expect(out).toBe(`${nameOf(first)} votes\n${nameOf(third)} votes\n`);
  expect(err).toContain('Not all nodes were initialised.');
  expect(await admissions()).toEqual([expect.any(String), null, expect.any(String)]);
  expect(await init()).toMatchObject({ code: 1, out: '' }); // the rest is not finished: they wait as ever
  const locks = await open();
  await locks.acquire(freshKey()); // by the two
  expect((await locks.ping()).nodes).toEqual({ voting: 2, of: 3 });
});

it('a node that has not said that it was initialised may have been, and that is said', async () => {
  const original = RedisNode.prototype.initialise;
  vi.spyOn(RedisNode.prototype, 'initialise').mockImplementation(async function (this: RedisNode, identity, forMs) {
    const answer = await original.call(this, identity, forMs);
    if (forMs === undefined) return answer;
    const error = new NodeError(this.name, 'no answer');
    return { status: 'fault', error, mayHaveRun: true, disconnected: false };
  });
  const { code, out, err } = await init();
  expect({ code, out }).toEqual({ code: 69, out: '' });
  for (const server of servers) expect(err).toContain(`${nameOf(server)}: no answer: it may have been initialised`);
  expect(err).toContain('Not all nodes were initialised.');
});

it('a node that restarts after the command init, or while it is at work, waits like any other [G489]', async () => {
  const [first, second, third] = servers as [RedisServer, RedisServer, RedisServer];
  beforeTheWrite(first, () => first.restart());
  expect(await init()).toMatchObject({ code: 0 });
  await second.command('SAVE'); // so that it comes back with what init has written
  await second.restart();
  expect(await admissions()).toEqual(Array(3).fill(expect.any(String)));
  await third.restart(); // without it
  const locks = await open();
  const error = await locks.acquire('x').catch((reason: unknown) => reason);
  const refused = (error as { causes: { node: string; problem: string }[] }).causes;
  expect(refused.map(({ node }) => node)).toEqual([first, second, third].map(nameOf));
  for (const { problem } of refused) expect(problem).toMatch(/^it votes in 1[12]\d{4} ms/);
});

it('a node that restarts at the end of the look is known by the run that it had before', async () => {
  const [first] = servers as [RedisServer];
  const original = RedisNode.prototype.initialise;
  let looks = 0;
  vi.spyOn(RedisNode.prototype, 'initialise').mockImplementation(async function (this: RedisNode, identity, forMs) {
    const answer = await original.call(this, identity, forMs);
    if (forMs === undefined && this.name === nameOf(first) && ++looks === 2) {
      await first.restart();
      await until(() => this.isReady, { what: 'the connection stands' });
    }
    return answer;
  });
  const [, run] = /run_id:(\w+)/.exec(String(await first.command('INFO', 'server')))!;
  expect(await init()).toMatchObject({ code: 0 });
  expect((await admissions())[0]).toMatch(new RegExp(` ${run}$`));
});

it('the command init asks first, and does nothing without a yes or a terminal', async () => {
  expect(await init([], { answer: '' })).toMatchObject({ code: 1, out: '' });
  expect(await init([])).toMatchObject({ code: 64 });
  expect(await admissions()).toEqual([null, null, null]);
  expect(await init([], { answer: 'y' })).toMatchObject({ code: 0 });
});

it('it refuses nodes that are not independent masters', async () => {
  const [first, second, third] = servers as [RedisServer, RedisServer, RedisServer];
  const twice = [first.url, second.url, first.url.replace('127.0.0.1', 'localhost')].join(',');
  expect(await call(['init', '--yes', '--redlock', twice])).toMatchObject({ code: 1 });
  await third.command('REPLICAOF', '127.0.0.1', 1); // of another server, so that the nodes do not show it
  expect(await init()).toMatchObject({ code: 1 });
  await third.command('REPLICAOF', 'NO', 'ONE');
  expect(await admissions()).toEqual([null, null, null]);
});
