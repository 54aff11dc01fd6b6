import { Redis } from 'ioredis';
import { expect, it, onTestFinished } from 'vitest';
import { replicaOf } from '../support/replica-of.js';
import { redisServer } from '../support/stage.js';
import { CommandFault } from '../../lib/stores/redis/client/redis-client.js';
import { faultOf } from '../../lib/stores/redis/ioredis/ioredis.js';
import { ScriptFault, scriptFaultOf } from '../../lib/stores/redis/scripts/script-fault.js';

it('a server that is a replica is known by the refusal of a script, and by the error in the middle of one', async () => {
  const replica = await replicaOf(await redisServer());
  const client = new Redis(replica.url);
  onTestFinished(() => client.disconnect());
  const fails = (script: string) => client.eval(script, 1, 'key').catch((error: unknown) => error);
  const raised = scriptFaultOf(faultOf(await fails(`return redis.call('SET', KEYS[1], '1')`), client));
  expect(raised).toMatchObject({ isReadOnly: true, message: expect.stringContaining('user_script') });
  const caught = await fails(`return { redis.pcall('SET', KEYS[1], '1').err }`);
  expect(new ScriptFault(String((caught as string[])[0]), false).isReadOnly).toBe(true);
});

it.each([
  ['READONLY You can’t write against a read only replica', true],
  [
    'ERR Error running script (call to f_1): @user_script:1: -READONLY You can’t write against a read only replica',
    true,
  ],
  ['NOPERM this user has no permissions to run the readonly command', false],
])('an error of Redis that says %s is one of a replica: %s', (message, isReadOnly) => {
  expect(new ScriptFault(message, false)).toMatchObject({ isReadOnly });
});

it.each([
  ...['TRYAGAIN', 'CLUSTERDOWN', 'LOADING', 'MASTERDOWN', 'READONLY'].map((code) => [code, true] as const),
  ...['OOM', 'MISCONF', 'NOREPLICAS', 'BUSY', 'NOPERM', 'MOVED', 'ERR'].map((code) => [code, false] as const),
])('a command that is refused with %s may be sent again in a moment: %s [G1023]', (code, maySoonPass) => {
  const refused = (message: string) => scriptFaultOf(new CommandFault(message, 'refused'));
  expect(refused(`${code} Not now`)).toMatchObject({ mayHaveRun: false, disconnected: maySoonPass });
  const midway = refused(`ERR Error running script: @user_script:1: -${code} Not now`);
  expect(midway).toMatchObject({ mayHaveRun: !maySoonPass, disconnected: maySoonPass });
});
