import type { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ACQUIRE, EXTEND, INSPECT, RELEASE, VOTE } from '../../lib/stores/redis/scripts/lua.js';
import {
  CommandFault,
  type RedisClient,
  type RedisTopology,
  type ScriptCall,
} from '../../lib/stores/redis/client/redis-client.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { runScript } from '../support/run-script.js';

const SCRIPTS = [ACQUIRE, EXTEND, INSPECT, RELEASE, VOTE];
/** The number of keys that each lock has for itself. */
const OWN_KEYS: Record<string, number> = { release: 2, vote: 2, inspect: 3 };

interface Call {
  script: Script;
  keys: readonly string[];
  args: readonly (string | number)[];
  /** The lock of each operation: the first key that it does not share. */
  locks: string[];
  answer: (replies: unknown) => void;
  fail: (problem: string) => void;
}

/** A client that records what it should send, and answers when the test says so. */
function noting(calls: Call[], topology: Partial<RedisTopology> = {}): RedisClient {
  const run = (call: ScriptCall) => {
    const script = SCRIPTS.find((each) => each.sha === call.script.sha)!;
    const keysEach = OWN_KEYS[script.name] ?? 1;
    const locks = call.keys.slice(script.sharedKeys).filter((_, index) => index % keysEach === 0);
    calls.push({
      script,
      keys: call.keys,
      args: call.args,
      locks,
      answer: (replies) => queueMicrotask(() => call.answered(replies)),
      fail: (problem) => queueMicrotask(() => call.failed(new CommandFault(problem, 'disconnected'))),
    });
  };
  return { isReady: true, topology: { isCluster: false, routeOf: () => [0], ...topology }, run } as RedisClient;
}

/** The answer for each lock is its name. */
function answerAll(calls: readonly Call[]): void {
  for (const { locks, answer } of calls) answer(locks.length === 1 ? locks[0] : locks);
}

const FENCE = 'fence';
const locks = (count: number, name: string) => Array.from({ length: count }, (_, index) => `${name}:${index}`);
const endOfTick = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('Of the operations of one tick', () => {
  let calls: Call[];
  let earlier: Call[];
  let runner: ScriptRunner;
  beforeEach(() => {
    calls = [];
    earlier = [];
    runner = atWork(noting(calls));
  });
  afterEach(() => answerAll([...earlier, ...calls])); // open operations would come due while other tests run

  /** Something is in flight on it. */
  function atWork(client: RedisClient): ScriptRunner {
    runner = new ScriptRunner(client, 5_000);
    void run(INSPECT, 'earlier');
    earlier.push(...calls.splice(0));
    return runner;
  }

  const run = (script: Script, lock: string): Promise<Reply> =>
    runScript(runner, script, keysOf(script, lock), script === INSPECT ? [] : ['me@']);
  const keysOf = (script: Script, lock: string): string[] => {
    if (script === RELEASE) return [FENCE, lock, `${lock}:queue`];
    if (script === INSPECT) return [lock, `${lock}:queue`, `${lock}:calls`];
    return script === ACQUIRE ? [FENCE, lock] : [lock];
  };
  const vote = (lock: string, epoch: string): Promise<Reply> =>
    runScript(runner, VOTE, ['admission', lock, `${lock}:fence`], [epoch, 1, `${lock}:value`]);
  const sent = () => calls.map(({ script, locks }) => [script.name, locks.length]);

  it('the first is sent at once when nothing is under way, the others at the end of the tick', async () => {
    answerAll(earlier);
    await endOfTick();
    const answers = [run(ACQUIRE, 'first'), run(RELEASE, 'second'), run(ACQUIRE, 'third')];
    expect(sent()).toEqual([['acquire', 1]]);
    await endOfTick();
    expect(sent()).toEqual([
      ['acquire', 1],
      ['release', 1],
      ['acquire', 1],
    ]);
    answerAll(calls);
    expect(await Promise.all(answers)).toEqual(['first', 'second', 'third']);
  });

  it('once one call is complete, all operations so far are sent, in their order; later ones at the end', async () => {
    const answers = [
      run(INSPECT, 'inspected'),
      run(RELEASE, 'released'),
      run(EXTEND, 'extended'),
      ...locks(50, 'a').map((lock) => run(ACQUIRE, lock)),
    ];
    const first = [
      ['release', 1],
      ['extend', 1],
      ['acquire', 50],
      ['inspect', 1],
    ];
    expect(sent()).toEqual(first);
    answers.push(run(ACQUIRE, 'later'), run(RELEASE, 'released later'));
    expect(sent()).toEqual(first);
    await endOfTick();
    expect(sent()).toEqual([...first, ['release', 1], ['acquire', 1]]);
    answerAll(calls);
    expect(await Promise.all(answers)).toEqual([
      'inspected',
      'released',
      'extended',
      ...locks(50, 'a'),
      'later',
      'released later',
    ]);
  });

  it('all fail after the last request when the connection is lost meanwhile, and none is sent', async () => {
    let isReady = true;
    runner = atWork(Object.defineProperty(noting(calls), 'isReady', { get: () => isReady }));
    isReady = false;
    const told: unknown[] = [];
    for (const lock of locks(50, 'a')) {
      runner.run(ACQUIRE, [FENCE, lock], [1, 'me@'], (answer) => void told.push(answer));
    }
    expect(told).toEqual([]);
    await endOfTick();
    expect(told).toEqual(Array(50).fill(expect.objectContaining({ message: 'not connected', mayHaveRun: false })));
    expect(calls).toEqual([]);
  });

  it('those that differ in a key or an argument that all of a call share travel in calls of their own', async () => {
    const answers = [
      vote('a', '7'),
      run(ACQUIRE, 'before'),
      vote('b', '8'),
      vote('c', '7'),
      run(RELEASE, 'released'),
      vote('d', '9'),
      vote('e', '8'),
      run(ACQUIRE, 'after'),
    ];
    expect(calls).toEqual([]);
    await endOfTick();
    expect(calls.map(({ script, locks }) => [script.name, ...locks])).toEqual([
      ['release', 'released'],
      ['vote', 'a', 'c'],
      ['acquire', 'before', 'after'],
      ['vote', 'b', 'e'],
      ['vote', 'd'],
    ]);
    const { keys, args } = calls[1]!;
    expect(keys).toEqual(['admission', 'a', 'a:fence', 'c', 'c:fence']);
    expect(args).toEqual(['7', 1, 'a:value', 'c:value']);
    answerAll(calls);
    expect(await Promise.all(answers)).toEqual(['a', 'before', 'b', 'c', 'released', 'd', 'e', 'after']);
  });

  it('the reader of one that was given up is not called again for a late answer', async () => {
    runner = new ScriptRunner(noting(calls), 20);
    const told: unknown[] = [];
    const asked = runner.ask(ACQUIRE, [FENCE, 'a'], [1, 'me@'], (answer) => void told.push(answer));
    await asked;
    expect(told).toEqual([expect.objectContaining({ message: 'no answer within 20 ms' })]);
    answerAll(calls);
    await endOfTick();
    expect(told).toHaveLength(1);
    const next = run(ACQUIRE, 'b'); // it serves again
    await endOfTick();
    answerAll(calls.slice(1));
    expect(await next).toBe('b');
  });

  it('one that was given up is not sent again when the server does not know its script', async () => {
    const again: unknown[] = [];
    const refuse: ((error: Error) => void)[] = [];
    const client = {
      status: 'ready',
      isCluster: false,
      options: {},
      evalsha: () => new Promise((_resolve, reject) => refuse.push(reject)),
      eval: (...sent: unknown[]) => Promise.resolve(again.push(sent)),
    };
    runner = new ScriptRunner(portOf(client as unknown as Redis), 20);
    await runner.ask(ACQUIRE, [FENCE, 'a'], [1, 'me@'], () => {});
    refuse[0]!(new Error('NOSCRIPT No matching script.'));
    await endOfTick();
    expect(again).toEqual([]);
    void run(ACQUIRE, 'b').catch(() => {}); // it serves again
    refuse[1]!(new Error('NOSCRIPT No matching script.'));
    await endOfTick();
    expect(again).toHaveLength(1);
  });

  it('one whose reader throws rejects, and the others have their answers', async () => {
    const answers = locks(3, 'a').map((lock) =>
      runner.ask(ACQUIRE, [FENCE, lock], [1, 'me@'], (answer) => {
        if (answer === 'a:1') throw new Error('a bug');
        return answer;
      }),
    );
    await endOfTick();
    answerAll(calls);
    expect(await Promise.allSettled(answers)).toEqual([
      { status: 'fulfilled', value: 'a:0' },
      { status: 'rejected', reason: new Error('a bug') },
      { status: 'fulfilled', value: 'a:2' },
    ]);
  });

  it.each([
    ['too few', (replies: string[]) => replies.slice(1)],
    ['too many', (replies: string[]) => [...replies, 'one more']],
    ['no list', (replies: string[]) => replies[0]],
    ['nothing for one', (replies: string[]) => [null, ...replies.slice(1)]],
  ])('none takes the answer of another when there are %s', async (_what, spoiled) => {
    const answers = locks(3, 'a').map((lock) => run(ACQUIRE, lock));
    await endOfTick();
    calls[0]!.answer(spoiled(calls[0]!.locks));
    const fault = { message: 'unexpected answer to the script acquire', mayHaveRun: true };
    expect(await Promise.allSettled(answers)).toEqual(
      Array(3).fill({ status: 'rejected', reason: expect.objectContaining(fault) }),
    );
  });
});
