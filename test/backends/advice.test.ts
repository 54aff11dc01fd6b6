import { expect, it } from 'vitest';
import { LockUnavailableError } from 'nest-redis-lock';
import { nodeError } from '../../lib/stores/redis/client/advice.js';
import { sqlError } from '../../lib/stores/sql/advice.js';
import { openLocks } from '../support/open-locks.js';
import { redisServer } from '../support/stage.js';

async function refusalOn(redis: { url: string }): Promise<string> {
  const locks = await openLocks({ redis: redis.url, commandTimeoutMs: 10_000 });
  const error = await locks.acquire('order:17').catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(LockUnavailableError);
  return (error as Error).message;
}

it('an error says that the memory of a server is full, and what to do [G594]', async () => {
  const redis = await redisServer('--maxmemory-policy', 'noeviction');
  await redis.command('CONFIG', 'SET', 'maxmemory', '1');
  const message = await refusalOn(redis);
  expect(message).toMatch(/OOM .*Its memory is full: raise maxmemory, or find what fills it/);
  expect(message).not.toContain('can be reached');
});

it('an error says what is wrong with a fencing counter that is out of range [G596]', async () => {
  const redis = await redisServer();
  await redis.command('SET', 'lock:fence', '9000000000000000');
  const message = await refusalOn(redis);
  expect(message).toMatch(/fencing counter lock:fence is out of range: delete it\. Another program wrote it/);
  expect(message).not.toContain('can be reached');
});

it.each([
  ['MISCONF Redis is configured to save RDB snapshots, but it is unable to persist', /cannot write to its disk/],
  ['NOREPLICAS Not enough good replicas to write', /min-replicas-to-write/],
  ['NOAUTH Authentication required', /Put the password into the URL/],
  ['not connected (reconnecting): 10.0.0.5:6379: NOAUTH Authentication required', /for a Cluster in redisOptions/],
  ['not connected (connecting): All sentinels are unreachable. Last error: NOAUTH Authentication required', /^$/],
  ['not connected (connecting): self-signed certificate in certificate chain', /^Its TLS certificate is not trusted/],
  ['not connected (connecting): certificate has expired', /has expired: renew it/],
  ['not connected (connecting): SSL routines:ssl3_read_bytes:tlsv13 alert certificate required', /give cert and key/],
  ['OOM-like words in another text', /^$/],
])('the advice on "%s" fits the error', (problem, advice) => {
  expect(nodeError('a:1', problem).advice ?? '').toMatch(advice);
});

it.each([
  ['certificate has expired', 'CERT_HAS_EXPIRED', /has expired: renew it/],
  ['certificate has expired', 'HANDSHAKE_SSL_ERROR', /has expired: renew it/],
  ['certificate is not yet valid', 'CERT_NOT_YET_VALID', /Its certificate is not trusted/],
])('the advice on "%s" of a database with the code %s fits the error', (problem, code, advice) => {
  expect(sqlError('a:1', problem, code).advice).toMatch(advice);
});
