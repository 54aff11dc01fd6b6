import { ReplyError } from 'ioredis';
import { expect, it } from 'vitest';
import { isReplyError, loadIoredis } from '../../lib/stores/redis/ioredis/ioredis.js';

/** As of ioredis 5 in a bundle whose minifier has renamed its classes. */
class A extends (ReplyError as new (message: string) => Error) {
  override get name() {
    return this.constructor.name;
  }
}

it('an answer of Redis is known when a minifier has renamed the errors of ioredis [G245]', async () => {
  await loadIoredis();
  const renamed = new A('ERR DB index is out of range');
  expect(renamed.name).toBe('A');
  expect(isReplyError(renamed)).toBe(true);
});

it('an answer of Redis is known when it comes from an ioredis of the application', () => {
  expect(isReplyError(Object.assign(new Error('ERR no'), { name: 'ReplyError' }))).toBe(true);
});

it('what breaks a connection is no answer of Redis', () => {
  expect(isReplyError(new Error('Connection is closed.'))).toBe(false);
  expect(isReplyError('ReplyError')).toBe(false);
});
