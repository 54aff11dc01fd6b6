import { expect, it } from 'vitest';
import { LockUnavailableError } from 'nest-redis-lock';
import { composeSqlLocks } from '../../lib/compose/open-sql.js';
import { certificatesFor } from '../support/certificates.js';
import { openSqlLocks } from '../support/open-locks.js';
import { ownMariaDb, PATIENT } from './server.js';

async function serverFor(host: string) {
  const { ca, caFile, certFile, keyFile } = certificatesFor(host);
  const server = await ownMariaDb({ 'ssl-ca': caFile, 'ssl-cert': certFile, 'ssl-key': keyFile });
  return { ca, options: { host: 'localhost', port: server.port, user: 'root', database: 'shop' } };
}

it('A MariaDB whose trusted certificate names its host is used, by TLS', async () => {
  const { ca, options } = await serverFor('localhost');
  const locks = await openSqlLocks({ mysql: { ...options, ssl: { ca } }, ...PATIENT });
  expect(await locks.tryAcquire('key')).not.toBeNull();
});

it('A MariaDB whose trusted certificate names another host is refused, unless the options say not to compare names [G987]', async () => {
  const { ca, options } = await serverFor('elsewhere.example');
  const opened = composeSqlLocks({
    mysql: { ...options, ssl: { ca } },
    ...PATIENT,
    connectTimeoutMs: 1_000,
  }).open();
  const error: unknown = await opened.catch((refusal: unknown) => refusal);
  expect(error).toBeInstanceOf(LockUnavailableError);
  expect((error as Error).message).toContain('does not match certificate');
  expect((error as Error).message).toContain('verifyIdentity: false');
  const trusting = { ...options, ssl: { ca, verifyIdentity: false } };
  expect(await (await openSqlLocks({ mysql: trusting, ...PATIENT })).tryAcquire('key')).not.toBeNull();
});
