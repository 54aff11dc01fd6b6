import { expect, it } from 'vitest';
import { problemOfIoredis } from '../../lib/stores/redis/client/ioredis.js';

it.each([
  ["ERR unknown command 'AUTH', with args beginning with: 'secret' ", "ERR unknown command 'AUTH'"],
  ['ERR unknown command `AUTH`, with args beginning with: `user`, `se\ncret`, ', 'ERR unknown command `AUTH`'],
  ['NOAUTH Authentication required.', 'NOAUTH Authentication required'],
  ['connect ECONNREFUSED 127.0.0.1:6379', 'connect ECONNREFUSED 127.0.0.1:6379'],
  [
    'Reached the max retries per request limit (which is 0). Refer to "maxRetriesPerRequest" option for details.',
    'the connection broke before the answer came',
  ],
])('an error that reads %j is told as %j', (message, problem) => {
  expect(problemOfIoredis(new Error(message))).toBe(problem);
});

it('an error of several addresses is told with each of them', () => {
  const errors = [new Error('connect ECONNREFUSED ::1:6379'), new Error('connect ECONNREFUSED 127.0.0.1:6379')];
  expect(problemOfIoredis(new AggregateError(errors))).toBe(
    'connect ECONNREFUSED ::1:6379, connect ECONNREFUSED 127.0.0.1:6379',
  );
});

it('what is no error is told as it is', () => {
  expect(problemOfIoredis('odd')).toBe('odd');
});
