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

const noScript = () => Promise.reject(new Error('NOSCRIPT'));

it.each([
  ['throws at once', broken({ evalsha: boom, eval: boom })],
  ['throws when the script is sent', broken({ evalsha: noScript, eval: boom })],
  ['rejects when the script is sent', broken({ evalsha: noScript, eval: async () => boom() })],
])('fails the operation of a client that %s', async (_when, client) => {
  const running = new ScriptRunner(client, 1_000).run(RELEASE, ['key'], ['me']);
  await expect(running).rejects.toThrow(ScriptFault);
  await expect(running).rejects.toThrow('patched');
});
