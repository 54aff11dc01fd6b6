import type { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { RELEASE } from '../../lib/stores/redis/scripts/lua.js';
import { ScriptFault } from '../../lib/stores/redis/scripts/script-fault.js';
import { ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { runScript } from '../support/run-script.js';
import { until } from '../support/until.js';

/** As a client that an application has wrapped or patched may behave. */
function broken(methods: { evalsha: () => unknown; eval: () => unknown }): Redis {
  return { status: 'ready', isCluster: false, options: {}, ...methods } as unknown as Redis;
}

const boom = (): never => {
  throw new Error('patched');
};

const noScript = () => Promise.reject(new Error('NOSCRIPT'));

it.each([
  ['throws at once', broken({ evalsha: boom, eval: boom })],
  ['throws when the script is sent', broken({ evalsha: noScript, eval: boom })],
  ['rejects when the script is sent', broken({ evalsha: noScript, eval: async () => boom() })],
])('fails the operation of a client that %s', async (_when, client) => {
  const running = runScript(new ScriptRunner(portOf(client), 1_000), RELEASE, ['fence', 'key', 'key:queue'], ['me@']);
  await expect(running).rejects.toThrow(ScriptFault);
  await expect(running).rejects.toThrow('patched');
});

it('fails all operations of a client that throws after they were asked for, also those that complete a call', async () => {
  const runner = new ScriptRunner(portOf(broken({ evalsha: boom, eval: boom })), 1_000);
  const problems: string[] = [];
  const asked = Array.from({ length: RELEASE.locksPerCall }, () =>
    runner.run(
      RELEASE,
      ['fence', 'key', 'key:queue'],
      ['me@'],
      (answer) => (answer instanceof ScriptFault ? answer.message : 'answered'),
      (problem) => problems.push(problem),
    ),
  );
  expect(problems).toEqual([]);
  await until(() => problems.length === asked.length, { what: 'all are told' });
  expect(new Set(problems)).toEqual(new Set(['patched']));
});
