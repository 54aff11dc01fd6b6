import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  ACQUIRE,
  EXTEND,
  INSPECT,
  KEEP,
  RAISE_FENCE,
  RELEASE,
  RESTORE,
  VOTE,
} from '../../lib/stores/redis/scripts/lua.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';

const FENCE = 'lock:fence';
const RAISED = '2000000000000000';
const aToken: unknown = expect.stringMatching(/^\d{16}$/);
const heldBy = (owner: string): unknown => expect.stringMatching(new RegExp(`^${owner}@\\d{16}$`));

describe('A ScriptRunner', () => {
  let server: RedisServer;
  let client: Redis;
  let runner: ScriptRunner;

  beforeAll(async () => {
    server = await RedisServer.start();
    client = new Redis(server.url);
    await client.ping();
  });
  afterAll(async () => {
    client.disconnect();
    await server.stop();
  });
  beforeEach(async () => {
    runner = new ScriptRunner(portOf(client), 30_000);
    await client.flushall();
    // So that no first use of a script adds to the counts.
    await acquire('warm-up');
    await extend('warm-up');
    await inspect('warm-up');
    await keep('warm-up');
    await release('warm-up');
    await server.resetCalls();
  });

  const acquire = (key: string, owner = 'me', ttlMs: number | string = 10_000): Promise<Reply> =>
    runScript(runner, ACQUIRE, [FENCE, key], [ttlMs, `${owner}@`]);
  const release = (key: string, owner = 'me'): Promise<Reply> =>
    runScript(runner, RELEASE, [FENCE, key, `${key}:queue`], [`${owner}@`]);
  const keep = (key: string, owner = 'me'): Promise<Reply> => runScript(runner, KEEP, [key], [5_000, `${owner}@`]);
  const extend = (key: string): Promise<Reply> => runScript(runner, EXTEND, [key], [20_000, 'me@']);
  const restore = (key: string): Promise<Reply> => runScript(runner, RESTORE, [key], [20_000, 'me@', RAISED]);
  const inspect = (key: string): Promise<Reply> =>
    runScript(runner, INSPECT, [key, `${key}:queue`, `${key}:calls`], []);
  // On a node of a Redlock locks have counters of their own.
  const raise = (key: string): Promise<Reply> => runScript(runner, RAISE_FENCE, [key, `${key}:fence`], ['me@', RAISED]);
  const vote = (key: string, epoch = ''): Promise<Reply> =>
    runScript(runner, VOTE, ['lock:admission', key, `${key}:fence`], [epoch, 10_000, `me@${RAISED}`]);

  /** In one tick, while the server is at work. */
  const all = <T>(operations: () => Promise<T>[]): Promise<T[]> => together(runner, () => Promise.all(operations()));
  const allSettled = <T>(operations: () => Promise<T>[]) => together(runner, () => Promise.allSettled(operations()));

  it('sends 100 acquires of one tick in two calls while the server is at work', async () => {
    const tokens = await all(() => Array.from({ length: 100 }, (_, index) => acquire(`key:${index}`)));
    expect(tokens.every((token) => Number(token) > 1e15)).toBe(true);
    expect(await server.calls()).toMatchObject({ evalsha: 3, set: expect.any(Number) });
    expect(await client.dbsize()).toBe(101); // with the counter
  });

  it('sends 101 in three calls, each operation with its own answer', async () => {
    await Promise.all([25, 75, 100].map((index) => acquire(`key:${index}`, 'somebody')));
    await server.resetCalls();
    const replies = await all(() => Array.from({ length: 101 }, (_, index) => acquire(`key:${index}`)));
    expect(replies.flatMap((reply, index) => (Array.isArray(reply) ? [[index, reply[1]]] : []))).toEqual([
      [25, heldBy('somebody')],
      [75, heldBy('somebody')],
      [100, heldBy('somebody')],
    ]);
    expect((await server.calls()).evalsha).toBe(4);
  });

  it('sends 201 extensions in three calls: nobody waits for those', async () => {
    await Promise.all(Array.from({ length: 201 }, (_, index) => acquire(`key:${index}`)));
    await server.resetCalls();
    const replies = await all(() => Array.from({ length: 201 }, (_, index) => extend(`key:${index}`)));
    expect(replies).toEqual(Array(201).fill(1));
    expect((await server.calls()).evalsha).toBe(4);
  });

  it('releases before it acquires within a tick, so that a lock can be handed over', async () => {
    await acquire('handed', 'first');
    const [token, released] = await all(() => [acquire('handed', 'second'), release('handed', 'first')]);
    expect(released).toBe(1);
    expect(Number(token)).toBeGreaterThan(1e15);
    expect(await client.get('handed')).toBe(`second@${String(token)}`);
  });

  it('keeps a lock before it acquires within a tick, and an extension of that tick does not make it last longer', async () => {
    await acquire('kept');
    const [token, extended, kept] = await all(() => [acquire('kept', 'second'), extend('kept'), keep('kept')]);
    expect([kept, extended]).toEqual([1, -1]);
    expect(token).toEqual([expect.any(Number), expect.stringMatching(/^me@\d{16}=$/)]);
    expect(await client.pttl('kept')).toBeLessThanOrEqual(5_000);
  });

  it('sends operations of different scripts in the order release, extend, acquire, inspect', async () => {
    await acquire('held');
    await acquire('freed');
    const seen: string[] = [];
    const note = (name: string) => () => void seen.push(name);
    await all(() => [
      inspect('held').then(note('inspect')),
      acquire('other').then(note('acquire')),
      extend('held').then(note('extend')),
      release('freed').then(note('release')),
    ]);
    expect(seen).toEqual(['release', 'extend', 'acquire', 'inspect']);
  });

  it.each([
    ['acquire', acquire, aToken],
    ['inspect', inspect, [expect.any(Number), heldBy('me'), expect.any(Number), '']],
    ['raise-fence', raise, 1],
  ] as const)('fails only the operation whose lock is no string, not its batch: %s', async (_name, operate, answer) => {
    await Promise.all(['a', 'z'].map((key) => acquire(key)));
    await client.mset('a:fence', 7, 'z:fence', 7);
    await client.lpush('list', 'not', 'a', 'lock');
    const [before, wrong, after] = await allSettled(() => ['a', 'list', 'z'].map((key) => operate(key)));
    expect([before, after]).toEqual(Array(2).fill({ status: 'fulfilled', value: answer }));
    expect(wrong).toMatchObject({
      status: 'rejected',
      reason: { message: expect.stringMatching(/WRONGTYPE/), mayHaveRun: false, disconnected: false },
    });
    expect(await client.lrange('list', 0, -1)).toEqual(['lock', 'a', 'not']);
  });

  it.each([
    ['release', release],
    ['extend', extend],
    ['restore', restore],
  ] as const)("takes a lock that is no string any more for another's: %s", async (_name, operate) => {
    await Promise.all(['a', 'z'].map((key) => acquire(key)));
    await client.lpush('list', 'not', 'a', 'lock');
    expect(await all(() => ['a', 'list', 'z'].map((key) => operate(key)))).toEqual([1, -1, 1]);
    expect(await client.lrange('list', 0, -1)).toEqual(['lock', 'a', 'not']);
  });

  describe.each([
    ['a list', (fence: string) => client.lpush(fence, 'not', 'a', 'counter')],
    ['a word', (fence: string) => client.set(fence, 'word')],
    ['out of range', (fence: string) => client.set(fence, '9e15')],
  ])('when a fencing counter became %s', (_what, corrupt) => {
    it.each([
      ['acquire by another', (key: string) => acquire(key, 'other'), [expect.any(Number), heldBy('me')]],
      ['acquire again', acquire, aToken],
      ['inspect', inspect, [expect.any(Number), heldBy('me'), expect.any(Number), '']],
      ['release', release, 1],
    ] as const)('does all operations that mint no token: %s', async (_name, operate, answer) => {
      for (const key of ['a', 'b', 'c']) await acquire(key);
      await client.del(FENCE);
      await corrupt(FENCE);
      expect(await all(() => ['a', 'b', 'c'].map((key) => operate(key)))).toEqual([answer, answer, answer]);
    });

    it.each([
      ['vote', vote, []],
      ['raise-fence', raise, ['a', 'bad', 'z']],
    ])('fails no operation of the batch that has another counter: %s', async (_name, operate, held) => {
      for (const key of held) await acquire(key);
      await corrupt('bad:fence');
      const [before, , after] = await allSettled(() => ['a', 'bad', 'z'].map((key) => operate(key)));
      expect([before!.status, after!.status]).toEqual(['fulfilled', 'fulfilled']);
    });
  });

  it.each([
    ['a list', () => client.lpush('bad:fence', 'not', 'a', 'counter'), /WRONGTYPE/],
    ['out of range', () => client.set('bad:fence', '9e15'), /bad:fence is out of range/],
  ])('refuses the vote and leaves no lock when its counter is %s', async (_what, corrupt, problem) => {
    await corrupt();
    await expect(vote('bad')).rejects.toThrow(problem);
    expect(await client.exists('bad')).toBe(0);
    await expect(vote('good')).resolves.toEqual([aToken, 'at', expect.any(Number)]);
  });

  it('sends operations that cannot share their first keys or arguments in calls of their own', async () => {
    const epochs = ['7', '8', '8', '7'];
    for (const key of ['a', 'b', 'c', 'd', 'script']) await client.set(`${key}:fence`, 8e15);
    await vote('script');
    await server.resetCalls();
    const votes = await all(() => epochs.map((epoch, index) => vote('abcd'[index]!, epoch)));
    expect(votes).toEqual(Array(4).fill(['8000000000000001', 'at', expect.any(Number)]));
    expect((await server.calls()).evalsha).toBe(3); // with the one in flight

    const owners = ['first', 'second', 'third'];
    const fences = [FENCE, 'lock:fence:other', FENCE];
    await server.resetCalls();
    const acquired = await all(() =>
      owners.map((owner, index) => runScript(runner, ACQUIRE, [fences[index]!, 'one'], [10_000, `${owner}@`])),
    );
    expect(acquired).toEqual([aToken, ...Array<unknown>(2).fill([expect.any(Number), heldBy('first')])]);
    expect((await server.calls()).evalsha).toBe(3);
  });

  it('extends what is held when Redis has no memory to put an absent lock back', async () => {
    await acquire('held');
    await client.config('SET', 'maxmemory', 1);
    const [restored, extended] = await allSettled(() => [restore('absent'), restore('held')]);
    await client.config('SET', 'maxmemory', 0);
    expect(extended).toEqual({ status: 'fulfilled', value: 1 });
    expect(restored).toMatchObject({ status: 'rejected', reason: { message: expect.stringMatching(/OOM/) } });
  });

  it('knows that a script which failed in the middle may have taken effect', async () => {
    await client.call('ACL', 'SETUSER', 'half', 'on', 'nopass', '~*', '+@all', '-pttl');
    const half = new Redis({ port: server.port, host: '127.0.0.1', username: 'half', password: 'any' });
    await half.ping();
    await acquire('held', 'somebody');
    runner = new ScriptRunner(portOf(half), 30_000);
    const outcomes = await allSettled(() => [acquire('free'), acquire('held')]);
    half.disconnect();
    expect(outcomes).toEqual(
      Array(2).fill({ status: 'rejected', reason: expect.objectContaining({ mayHaveRun: true, disconnected: false }) }),
    );
    expect(await client.get('free')).toEqual(heldBy('me'));
  });

  it('fails the operations of one call and not those of the next', async () => {
    await client.call('ACL', 'SETUSER', 'limited', 'on', 'nopass', '~allowed:*', `~${FENCE}`, '+@all');
    const limited = new Redis({ port: server.port, host: '127.0.0.1', username: 'limited', password: 'any' });
    await limited.ping();
    runner = new ScriptRunner(portOf(limited), 30_000);
    const keys = Array.from({ length: 150 }, (_, index) => (index === 75 ? 'forbidden' : `allowed:${index}`));
    const outcomes = await allSettled(() => keys.map((key) => acquire(key)));
    limited.disconnect();
    const status = (from: number, to: number) => new Set(outcomes.slice(from, to).map((outcome) => outcome.status));
    expect([status(0, 50), status(50, 100), status(100, 150)]).toEqual([
      new Set(['fulfilled']),
      new Set(['rejected']),
      new Set(['fulfilled']),
    ]);
    // Redis refused the call before it ran the script.
    expect(outcomes[60]).toMatchObject({ reason: { message: expect.stringMatching(/NOPERM/), mayHaveRun: false } });
  });
});
