import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { portOf } from '../support/port-of.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';
import { until } from '../support/until.js';
import {
  ACQUIRE,
  client,
  FENCE,
  INSPECT,
  onServer,
  RAISE_FENCE,
  RELEASE,
  type Reply,
  run,
  runner,
  runnerWith,
  ScriptFault,
  ScriptRunner,
  VOTE,
} from './script-server.js';

const RAISED = '2000000000000000';
const aToken: unknown = expect.stringMatching(/^\d{16}$/);
const heldBy = (owner: string): unknown => expect.stringMatching(new RegExp(`^${owner}@\\d{16}$`));

describe('A ScriptRunner', () => {
  onServer();

  const acquire = (key: string, owner = 'me', by = runner): Promise<Reply> =>
    runScript(by, ACQUIRE, [FENCE, key], [10_000, `${owner}@`]);
  const inspect = (key: string) => run(INSPECT, [key, `${key}:queue`, `${key}:calls`]);
  // On a node of a Redlock locks have counters of their own.
  const raise = (key: string) => run(RAISE_FENCE, [key, `${key}:fence`], 'me@', RAISED);
  const vote = (key: string) => run(VOTE, ['lock:admission', key, `${key}:fence`], '', 10_000, `me@${RAISED}`);

  /** In one tick, while the server is busy. */
  const allSettled = (operations: () => Promise<Reply>[], by = runner) =>
    together(by, () => Promise.allSettled(operations()));

  it.each([
    ['acquire', acquire, aToken],
    ['inspect', inspect, [expect.any(Number), heldBy('me'), expect.any(Number), '']],
    ['raise-fence', raise, 1],
  ] as const)(
    'fails only the operation whose lock is not a string, not its batch: %s',
    async (_name, operate, answer) => {
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
    },
  );

  it.each([
    ['vote', vote, []],
    ['raise-fence', raise, ['a', 'bad', 'z']],
  ])('fails no operation of the batch that has another counter than a bad one: %s', async (_name, operate, held) => {
    for (const key of held) await acquire(key);
    await client.lpush('bad:fence', 'not', 'a', 'counter');
    const outcomes = await allSettled(() => ['a', 'bad', 'z'].map((key) => operate(key)));
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  });

  it('knows that a script which failed in the middle may have taken effect', async () => {
    await acquire('held', 'somebody');
    const half = await runnerWith('~*', '+@all', '-pttl');
    const outcomes = await allSettled(() => ['free', 'held'].map((key) => acquire(key, 'me', half)), half);
    expect(outcomes).toEqual(
      Array(2).fill({ status: 'rejected', reason: expect.objectContaining({ mayHaveRun: true, disconnected: false }) }),
    );
    expect(await client.get('free')).toEqual(heldBy('me'));
  });
});

describe('A client that an application has wrapped or patched', () => {
  const broken = (methods: { evalsha: () => unknown; eval: () => unknown }) =>
    new ScriptRunner(portOf({ status: 'ready', isCluster: false, options: {}, ...methods } as unknown as Redis), 1_000);
  const boom = (): never => {
    throw new Error('patched');
  };
  const noScript = () => Promise.reject(new Error('NOSCRIPT'));

  it.each([
    ['throws at once', { evalsha: boom, eval: boom }],
    ['throws when the script is sent', { evalsha: noScript, eval: boom }],
    ['rejects when the script is sent', { evalsha: noScript, eval: async () => boom() }],
  ])(
    'and that %s fails all operations after they were asked for, also those that complete a call',
    async (_, methods) => {
      const faulty = broken(methods);
      const faults: unknown[] = [];
      for (let asked = 0; asked < RELEASE.locksPerCall; asked++)
        faulty.run(RELEASE, ['fence', 'key', 'key:queue'], ['me@'], (fault) => faults.push(fault));
      expect(faults).toEqual([]);
      await until(() => faults.length === RELEASE.locksPerCall, { what: 'all are notified' });
      for (const fault of faults) {
        expect(fault).toBeInstanceOf(ScriptFault);
        expect(fault).toMatchObject({ message: 'patched' });
      }
    },
  );
});
