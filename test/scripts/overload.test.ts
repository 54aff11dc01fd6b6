import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { COMMANDS_IN_FLIGHT, type Wanted } from '../../lib/core/backend/lane.js';
import type { RedisClient, ScriptCall } from '../../lib/stores/redis/client/redis-client.js';
import { RELEASE_AND_TURN } from '../../lib/stores/redis/node/lock-scripts.js';
import { ACQUIRE, EXTEND, RELEASE, TURN } from '../../lib/stores/redis/scripts/lua.js';
import { ScriptFault } from '../../lib/stores/redis/scripts/script-fault.js';
import { type Reply, ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { clusterSlot } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

const LIMIT_MS = 1_000;
const IN_FLIGHT = COMMANDS_IN_FLIGHT * ACQUIRE.locksPerCall;
const STILL_OPEN = { message: 'it does not answer (an earlier command is still in flight)', mayHaveRun: false };
const OVERDUE = { message: `no answer within ${LIMIT_MS} ms`, mayHaveRun: true };

const endOfTick = () => new Promise<void>((resolve) => setImmediate(resolve));
const keysOf = (script: Script, lock: string): string[] => {
  if (script === EXTEND) return [lock];
  return script === ACQUIRE ? ['fence', lock] : ['fence', lock, `${lock}:queue`];
};
const argsOf = (script: Script): (string | number)[] => {
  if (script.sha === TURN.sha) return ['h', script === TURN ? '' : 'me@', 'again@', 10_000, 1, '', '', 0, 0];
  return script === RELEASE ? ['me@'] : [10_000, 'me@'];
};
const locks = (count: number, name = 'key') => Array.from({ length: count }, (_, index) => `${name}:${index}`);

describe('Of the operations for a server that is busy', () => {
  let calls: ScriptCall[];
  let client: RedisClient & { generation: unknown };
  let runner: ScriptRunner;
  let now: number;
  const answers: (Reply | ScriptFault)[] = [];
  const sentAt: number[] = [];

  beforeEach(() => {
    calls = [];
    answers.length = sentAt.length = now = 0;
    const topology = { isCluster: false, routeOf: () => [0] };
    client = { isReady: true, generation: 1, topology } as unknown as typeof client;
    client.run = (call) => void calls.push(call);
    runner = new ScriptRunner(client, LIMIT_MS, { now: () => now });
    onTestFinished(async () => {
      while (calls.length > 0) await answerNext(); // open operations would come due while other tests run
    });
  });

  function run(script: Script, lock: string, wanted?: Wanted, args = argsOf(script)): void {
    const done = (answer: Reply | ScriptFault, at: number) => {
      answers.push(answer);
      sentAt.push(at);
    };
    runner.run(script, keysOf(script, lock), args, done, wanted);
  }

  /**
   * The server answers its oldest command, and the runner may send others.
   * @returns the number of its locks
   */
  async function answerNext(): Promise<number> {
    const call = calls.shift()!;
    const { sharedKeys } = call.script as Script;
    const eachKeys = keysOf(call.script as Script, '').length - sharedKeys;
    const owned = call.keys.slice(sharedKeys).filter((_, index) => index % eachKeys === 0);
    call.answered(owned.length === 1 ? owned[0] : owned);
    await endOfTick();
    return owned.length;
  }

  /** The maximum number of commands is in flight, each for one acquire, or for 50. */
  async function fill(): Promise<void> {
    for (let command = 0; command < COMMANDS_IN_FLIGHT; command++) {
      run(ACQUIRE, `first:${command}`);
      await endOfTick();
    }
  }
  const sent = () => calls.map(({ script, keys }) => [(script as Script).name, ...keys]);

  it('releases and extensions are sent in turn, and before acquires that came earlier', async () => {
    await fill();
    for (const lock of locks(150, 'acquired')) run(ACQUIRE, lock);
    for (const lock of locks(150, 'released')) run(RELEASE, lock);
    await endOfTick();
    for (const lock of locks(300, 'extended')) run(EXTEND, lock);
    await endOfTick();
    const names: string[] = [];
    for (let command = 0; command < COMMANDS_IN_FLIGHT; command++) await answerNext();
    for (const [name] of sent()) names.push(name!);
    const urgent = names.slice(0, 6);
    expect([...urgent].sort()).toEqual([...Array<string>(3).fill('extend'), ...Array<string>(3).fill('release')]);
    expect(urgent.slice(0, 4).filter((name) => name === 'extend')).toHaveLength(2);
    expect(names.slice(6)).toEqual(['acquire', 'acquire', 'acquire']);
  });

  it('a turn that gives a lock back is sent with the releases, before acquires and other turns that came earlier [G641]', async () => {
    await fill();
    for (const lock of locks(50, 'acquired')) run(ACQUIRE, lock);
    for (const lock of locks(50, 'asked for')) run(TURN, lock);
    for (const lock of locks(50, 'released')) run(RELEASE, lock);
    for (const lock of locks(50, 'given back')) run(RELEASE_AND_TURN, lock);
    await endOfTick();
    for (let command = 0; command < COMMANDS_IN_FLIGHT; command++) await answerNext();
    expect(sent().map(([name]) => name)).toEqual(['release', 'release-and-turn', 'acquire', 'turn']);
  });

  it('no release is overtaken by a later acquire of its lock, which joins a command that waits [G260]', async () => {
    await fill();
    run(ACQUIRE, 'another');
    await endOfTick();
    run(RELEASE, 'passed on');
    run(ACQUIRE, 'passed on');
    await answerNext(); // in the same tick, before any of them has its place
    await answerNext();
    expect(sent().slice(-2)).toEqual([
      ['release', 'fence', 'passed on', 'passed on:queue'],
      ['acquire', 'fence', 'another', 'passed on'],
    ]);
  });

  it('one that was withdrawn while it waited is not sent, and no other of its command is harmed', async () => {
    await fill();
    const withdrawn = { isWanted: true };
    const lists = [locks(ACQUIRE.locksPerCall, 'all'), ['a', 'b', 'c']];
    for (const lock of lists[0]!) run(ACQUIRE, lock, withdrawn);
    run(ACQUIRE, 'a');
    run(ACQUIRE, 'b', withdrawn);
    run(ACQUIRE, 'c', { isWanted: true });
    await endOfTick();
    withdrawn.isWanted = false;
    for (let command = 0; command < COMMANDS_IN_FLIGHT; command++) await answerNext();
    expect(sent()).toEqual([['acquire', 'fence', 'a', 'c']]);
    expect(calls[0]!.args).toEqual([10_000, 'me@', 'me@']);
    await answerNext();
    const faults = answers.filter((answer) => answer instanceof ScriptFault);
    expect(faults).toHaveLength(lists[0]!.length + 1);
    expect(faults[0]).toMatchObject({ mayHaveRun: false, disconnected: false });
    expect(answers).toEqual(expect.arrayContaining(['a', 'c']));
    expect(runner.isAnswered).toBe(true);
  });

  it('one that waited counts from when it was sent, not from when it was asked for [G261]', async () => {
    await fill();
    run(ACQUIRE, 'waits');
    await endOfTick();
    now = 700;
    await answerNext();
    now = 900;
    while (calls.length > 0) await answerNext();
    expect(answers.at(-1)).toBe('waits');
    expect(sentAt).toEqual([...Array<number>(COMMANDS_IN_FLIGHT).fill(0), 700]);
  });

  it('those that differ in a key or an argument that all of a call share travel in calls of their own', async () => {
    run(ACQUIRE, 'first');
    run(ACQUIRE, 'a');
    run(ACQUIRE, 'b', undefined, [20_000, 'me@']);
    runner.run(ACQUIRE, ['another fence', 'c'], [10_000, 'me@'], (answer) => void answers.push(answer));
    run(ACQUIRE, 'd');
    await endOfTick();
    expect(calls.slice(1).map(({ keys, args }) => [...keys, ...args])).toEqual([
      ['fence', 'a', 'd', 10_000, 'me@', 'me@'],
      ['fence', 'b', 20_000, 'me@'],
      ['another fence', 'c', 10_000, 'me@'],
    ]);
  });

  it.each([
    ['too few', (locks: string[]) => locks.slice(1)],
    ['too many', (locks: string[]) => [...locks, 'one more']],
    ['no list', ([lock]: string[]) => lock],
    ['nothing for one', (locks: string[]) => [null, ...locks.slice(1)]],
  ])('none takes the answer of another when there are %s', async (_what, spoiled) => {
    for (const lock of ['first', ...locks(3)]) run(ACQUIRE, lock);
    await endOfTick();
    calls.pop()!.answered(spoiled(locks(3)));
    const fault = { message: 'unexpected answer to the script acquire', mayHaveRun: true };
    expect(answers).toEqual(Array(3).fill(expect.objectContaining(fault)));
  });

  it('one that was given up is neither answered late, nor sent again when the server does not know its script', async () => {
    const again: unknown[] = [];
    const refuse: ((error: Error) => void)[] = [];
    const evalsha = () => new Promise((_resolve, reject) => refuse.push(reject));
    const methods = { evalsha, eval: (...sent: unknown[]) => Promise.resolve(again.push(sent)) };
    runner = new ScriptRunner(portOf({ status: 'ready', isCluster: false, options: {}, ...methods } as never), 20);
    run(ACQUIRE, 'a');
    await until(() => answers.length > 0, { what: 'it is given up' });
    refuse[0]!(new Error('NOSCRIPT No matching script.'));
    await endOfTick();
    expect(again).toEqual([]);
    run(ACQUIRE, 'b'); // it serves again
    refuse[1]!(new Error('NOSCRIPT No matching script.'));
    await endOfTick();
    expect([again.length, answers.length]).toEqual([1, 2]);
  });

  it('none that waits is sent on another connection than it was meant for, where that counts', async () => {
    runner = new ScriptRunner(client, LIMIT_MS, { sameConnection: true });
    await fill();
    run(ACQUIRE, 'waits');
    await endOfTick();
    client.generation = 2;
    await answerNext();
    expect(answers.at(-1)).toMatchObject({ message: 'not connected', mayHaveRun: false, disconnected: true });
    expect(sent().some((call) => call.includes('waits'))).toBe(false);
  });

  it('all that wait fail when the connection is lost, and none is kept for later', async () => {
    await fill();
    for (const lock of locks(1_000)) run(ACQUIRE, lock);
    await endOfTick();
    Object.assign(client, { isReady: false });
    await answerNext();
    expect(answers.slice(1)).toEqual(
      Array(1_000).fill(expect.objectContaining({ message: 'not connected', mayHaveRun: false, disconnected: true })),
    );
    expect(calls).toHaveLength(COMMANDS_IN_FLIGHT - 1);
  });

  describe('with time limits', () => {
    beforeEach(() => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'], now: 0 });
      vi.spyOn(performance, 'now').mockImplementation(() => Date.now());
      onTestFinished(() => void vi.restoreAllMocks().useRealTimers());
    });
    async function pass(ms: number): Promise<void> {
      vi.advanceTimersByTime(ms);
      await endOfTick();
    }

    it('none fails as long as the server answers one command within the limit [G262]', async () => {
      for (const lock of locks(5_000)) run(ACQUIRE, lock);
      await endOfTick();
      while (calls.length > 0) {
        await pass(LIMIT_MS - 1);
        await answerNext();
      }
      expect(answers).toEqual(locks(5_000));
      expect(Date.now()).toBeGreaterThan(100 * (LIMIT_MS - 1));
    });

    it('all fail after one limit when the server hangs: those that were sent may have run, those that waited not [G263]', async () => {
      for (const lock of locks(5_000)) run(ACQUIRE, lock);
      await pass(LIMIT_MS - 1);
      expect(answers).toEqual([]);
      await pass(1);
      const inFlight = (COMMANDS_IN_FLIGHT - 1) * ACQUIRE.locksPerCall + 1;
      expect(answers.filter((answer) => (answer as ScriptFault).mayHaveRun)).toHaveLength(inFlight);
      expect(answers).toEqual(
        expect.arrayContaining([expect.objectContaining(OVERDUE), expect.objectContaining(STILL_OPEN)]),
      );
      expect(answers).toHaveLength(5_000);
      run(ACQUIRE, 'later');
      await endOfTick();
      expect(answers.at(-1)).toMatchObject(STILL_OPEN);
      expect(calls).toHaveLength(COMMANDS_IN_FLIGHT);
    });

    it('a server that hangs costs the operations for other servers nothing', async () => {
      Object.assign(client.topology, { isCluster: true, routeOf: (key: string) => [clusterSlot(key), key] });
      for (let command = 0; command < COMMANDS_IN_FLIGHT; command++) {
        run(EXTEND, '{a}');
        await endOfTick();
      }
      run(EXTEND, '{b}');
      await endOfTick();
      calls.pop()!.answered('{b}');
      expect(answers).toEqual(['{b}']);
      await pass(LIMIT_MS);
      run(EXTEND, '{b}');
      run(EXTEND, '{a}');
      await endOfTick();
      expect(sent().at(-1)).toEqual(['extend', '{b}']);
      expect(answers.at(-1)).toMatchObject(STILL_OPEN);
    });

    it('a command that the server skips has the time of one limit, and blocks only its slot', async () => {
      Object.assign(client.topology, { isCluster: true, routeOf: (key: string) => [clusterSlot(key), 'node'] });
      run(EXTEND, '{a}');
      await endOfTick();
      const [passedOver] = calls.splice(0);
      for (let round = 0; round < 3; round++) {
        run(EXTEND, '{b}');
        await pass(LIMIT_MS / 2 - 1);
        await answerNext();
      }
      expect(answers).toEqual(['{b}', '{b}', expect.objectContaining(OVERDUE), '{b}']);
      run(EXTEND, '{a}');
      run(EXTEND, '{b}');
      await endOfTick();
      expect(sent()).toEqual([['extend', '{b}']]);
      expect(answers.at(-1)).toMatchObject(STILL_OPEN);
      passedOver!.answered('{a}');
      run(EXTEND, '{a}');
      await endOfTick();
      expect(sent()).toEqual([
        ['extend', '{b}'],
        ['extend', '{a}'],
      ]);
    });
  });
});

describe('A burst', () => {
  let server: RedisServer;
  let client: Redis;

  beforeAll(async () => {
    server = await RedisServer.start();
    client = new Redis(server.url);
    await client.ping();
  });
  beforeEach(() => client.flushall());
  afterEach(() => server.resume());
  afterAll(async () => {
    client.disconnect();
    await server.stop();
  });

  it('of 10 000 acquires does not hold up extensions that come after it [G265]', async () => {
    const runner = new ScriptRunner(portOf(client), 60_000);
    for (const lock of locks(200, 'held')) await acquired(runner, lock);
    server.pause();
    const order: ('acquired' | 'extended')[] = [];
    const ask = (script: Script, lock: string, what: (typeof order)[number]) =>
      runner.run(script, keysOf(script, lock), argsOf(script), (reply) => Number(reply) > 0 && order.push(what));
    for (const lock of locks(10_000)) ask(ACQUIRE, lock, 'acquired');
    await endOfTick();
    for (const lock of locks(200, 'held')) ask(EXTEND, lock, 'extended');
    await endOfTick();
    server.resume();
    await until(() => order.length === 10_200, { what: 'all are answered', timeoutMs: 60_000 });
    const before = order.slice(0, order.lastIndexOf('extended') + 1);
    expect(before.filter((what) => what === 'extended')).toHaveLength(200);
    expect(before.length - 200).toBeLessThanOrEqual(2 * IN_FLIGHT);
  });

  it('of 50 000 calls of a service is served, and so are their releases [G266]', async () => {
    const service = await openLocks({ redis: server.url, ttlMs: 60_000, waitMs: 300_000 });
    const held = await Promise.all(locks(50_000).map((key) => service.acquire(key, { watchdog: false })));
    expect(held.filter((lock) => !lock.isHeld)).toEqual([]);
    await Promise.all(held.map((lock) => lock.release()));
    expect(await client.dbsize()).toBe(1); // the counter
  });

  it('keeps no call waiting for longer than its waitMs, and what that has withdrawn is not sent [G267]', async () => {
    const service = await openLocks({ redis: server.url, ttlMs: 60_000, waitMs: 300_000 });
    await (await service.acquire('warm-up')).release();
    server.pause();
    const others = locks(4_000).map((key) => service.acquire(key, { watchdog: false }));
    await expect(service.acquire('short', { waitMs: 20 })).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    server.resume();
    const held = await Promise.all(others);
    const fence = Number(await client.get('lock:fence'));
    expect(Math.max(...held.map((lock) => lock.fencingToken!))).toBe(fence); // no token was created for it
    expect(await client.exists('lock:{short}')).toBe(0);
    await Promise.all(held.map((lock) => lock.release()));
    expect(service.size).toBe(0);
  });

  it('only releases a lock whose next call has given up before its turn was sent [G642]', async () => {
    const service = await openLocks({ redis: server.url, ttlMs: 60_000, waitMs: 300_000, cohortMs: 0 });
    const lock = await service.acquire('given back');
    const controller = new AbortController();
    const waiting = service.acquire('given back', { signal: controller.signal });
    await until(async () => (await client.exists('lock:{given back}')) === 1, { what: 'it is held' });
    server.pause();
    const others = locks(4_000).map((key) => service.acquire(key, { watchdog: false }));
    const released = lock.release().then(async (wasHeld) => [wasHeld, await client.exists('lock:{given back}')]);
    controller.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    server.resume();
    expect(await released).toEqual([true, 0]);
    await Promise.all((await Promise.all(others)).map((each) => each.release()));
    expect(service.size).toBe(0);
  });

  it('of releases is waited for when the service closes [G268]', async () => {
    const service = await openLocks({ redis: server.url, waitMs: 300_000 });
    const held = await Promise.all(locks(5_000).map((key) => service.acquire(key)));
    for (const lock of held) void lock.release();
    await service.beforeApplicationShutdown();
    await service.onApplicationShutdown();
    expect(await client.dbsize()).toBe(1); // the counter
  });

  it('for a server that hangs costs one time limit [G269]', async () => {
    const service = await openLocks({ redis: server.url, waitMs: 300_000, commandTimeoutMs: LIMIT_MS });
    await (await service.acquire('warm-up')).release();
    server.pause();
    const begin = performance.now();
    const outcomes = await Promise.allSettled(locks(10_000).map((key) => service.acquire(key)));
    expect(performance.now() - begin).toBeLessThan(10 * LIMIT_MS);
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toEqual([]);
    server.resume();
    await server.resetCalls();
    const isServed = () =>
      service.acquire('later').then(
        () => true,
        () => false,
      );
    await until(isServed, { what: 'it serves again' });
    const { evalsha } = await server.calls();
    expect(evalsha).toBeLessThan(4 * COMMANDS_IN_FLIGHT); // with the releases of the locks that had been sent
  });

  const acquired = (runner: ScriptRunner, lock: string) =>
    runner.ask(ACQUIRE, keysOf(ACQUIRE, lock), argsOf(ACQUIRE), (answer) => answer);
});
