import type { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { RELEASE } from '../../lib/scripts/release.script.js';
import { ScriptFault } from '../../lib/scripts/script-fault.js';
import { ScriptRunner } from '../../lib/scripts/script-runner.js';

/** As a client that an application has wrapped or patched may behave. */
function broken(methods: { evalsha: () => unknown; eval: () => unknown }): Redis {
  return { status: 'ready', isCluster: false, options: {}, ...methods } as unknown as Redis;
}

const boom = (): never => {
  throw new Error('patched');
};

it.each([
  ['at once', broken({ evalsha: boom, eval: boom })],
  ['when the script is sent', broken({ evalsha: () => Promise.reject(new Error('NOSCRIPT')), eval: boom })],
])('fails the operation of a client that throws %s', async (_when, client) => {
  const running = new ScriptRunner(client, 1_000).run(RELEASE, ['key'], ['me']);
  await expect(running).rejects.toThrow(ScriptFault);
  await expect(running).rejects.toThrow('patched');
});
