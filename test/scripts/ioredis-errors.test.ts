import { ReplyError } from 'ioredis';
import { expect, it } from 'vitest';
import type { IoredisClient } from 'nest-redis-lock';
import { CommandFault } from '../../lib/stores/redis/client/redis-client.js';
import { isReplyError, loadIoredis, problemOfIoredis } from '../../lib/stores/redis/ioredis/ioredis.js';
import { ScriptFault, scriptFaultOf } from '../../lib/stores/redis/scripts/script-fault.js';

const clientWith = (options: object) => ({ isCluster: false, options }) as unknown as IoredisClient;
const CLIENT = clientWith({});

it.each([
  ["ERR unknown command 'AUTH', with args beginning with: 'secret' ", "ERR unknown command 'AUTH'"],
  ['ERR unknown command `AUTH`, with args beginning with: `user`, `se\ncret`, ', 'ERR unknown command `AUTH`'],
  ['NOAUTH Authentication required.', 'NOAUTH Authentication required'],
  ['connect ECONNREFUSED 127.0.0.1:6379', 'connect ECONNREFUSED 127.0.0.1:6379'],
  [
    'Reached the max retries per request limit (which is 0). Refer to "maxRetriesPerRequest" option for details.',
    'the connection broke before the answer came',
  ],
])('an error that reads %j is reported as %j', (message, problem) => {
  expect(problemOfIoredis(new Error(message), CLIENT)).toBe(problem);
});

it('an error of several addresses is reported with each of them', () => {
  const errors = [new Error('connect ECONNREFUSED ::1:6379'), new Error('connect ECONNREFUSED 127.0.0.1:6379')];
  expect(problemOfIoredis(new AggregateError(errors), CLIENT)).toBe(
    'connect ECONNREFUSED ::1:6379, connect ECONNREFUSED 127.0.0.1:6379',
  );
});

it('a value that is not an error is reported as it is', () => {
  expect(problemOfIoredis('odd', CLIENT)).toBe('odd');
});

it.each([
  ['a password', { password: 's3cret' }, 'ERR s3cretly: s3cret', 'ERR ***ly: ***'],
  ['the form that it has in a URL', { password: 'a/b c' }, 'ERR got a%2Fb%20c, a/b c', 'ERR got ***, ***'],
  ['its decoded form', { password: 'a%2Fbc' }, 'ERR got a/bc', 'ERR got ***'],
  ['its quoted form', { password: 'a"bc' }, 'ERR got "a\\"bc"', 'ERR got "***"'],
  ['a percent sign of its own', { password: '100%sure' }, 'ERR got 100%sure', 'ERR got ***'],
  ['a pattern', { password: '(.*)+$' }, 'ERR got (.*)+$', 'ERR got ***'],
  ['a password that is a part of another', { password: 'long', sentinelPassword: 'longer' }, 'longer long', '*** ***'],
  ['a short password as a word', { password: '637' }, "ERR '637' at 127.0.0.1:6379", "ERR '***' at 127.0.0.1:6379"],
  ['a user name as a word', { username: 'script' }, 'User script: @user_script', 'User ***: @user_script'],
  ['the name of the default user', { username: 'default' }, 'user default', 'user default'],
  ['no password', { password: '', username: null }, 'ERR odd', 'ERR odd'],
])('an error that repeats %s is reported without the credentials', (_what, options, message, problem) => {
  expect(problemOfIoredis(new Error(message), clientWith(options))).toBe(problem);
});

/** Like ioredis 5 in a bundle whose minifier has renamed its classes. */
class A extends (ReplyError as new (message: string) => Error) {
  override get name() {
    return this.constructor.name;
  }
}

it('an answer of Redis is recognized when a minifier has renamed the errors of ioredis [G245]', async () => {
  await loadIoredis();
  const renamed = new A('ERR DB index is out of range');
  expect(renamed.name).toBe('A');
  expect(isReplyError(renamed)).toBe(true);
});

it('an error that breaks a connection is not an answer of Redis', () => {
  expect(isReplyError(new Error('Connection is closed.'))).toBe(false);
  expect(isReplyError('ReplyError')).toBe(false);
});

it.each([
  ['READONLY You can’t write against a read only replica', true],
  [
    'ERR Error running script (call to f_1): @user_script:1: -READONLY You can’t write against a read only replica',
    true,
  ],
  ['NOPERM this user has no permissions to run the readonly command', false],
])('an error of Redis that says %s is recognized as an error of a replica: %s', (message, isReadOnly) => {
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
