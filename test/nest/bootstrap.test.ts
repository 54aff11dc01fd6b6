import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { Redis } from 'ioredis';
import { LockUnavailableError, type RedisLockModuleOptions, type RedisSource } from 'nest-redis-lock';
import { expect, it, onTestFinished } from 'vitest';
import { candidatePort } from '../../servers/candidate-port.js';
import { certificatesFor } from '../support/certificates.js';
import { failureOf } from '../support/failed-start.js';
import { redisServer } from '../support/stage.js';

async function messageOf(options: RedisLockModuleOptions): Promise<string> {
  const error = await failureOf({ connectTimeoutMs: 600_000, ...options });
  expect(error).toBeInstanceOf(LockUnavailableError);
  return error.message;
}

const narrow = ['on', '>secret', 'allkeys', 'allchannels', '+@all', '-select'];
const advice = 'Give its user the right +select, or name a database that it has.';

it.each([
  ['a database that the server does not have', 'redis://127.0.0.1', 99, /ERR DB index is out of range\. /],
  ['a user without the right to it', 'redis://narrow:secret@127.0.0.1', 1, /NOPERM .*\. /],
])(
  'an application does not take locks in another database than it was given, where nobody looks for them: %s',
  async (_, url, database, refusal) => {
    const redis = await redisServer();
    await redis.command('ACL', 'SETUSER', 'narrow', ...narrow);
    const given = `${url}:${redis.port}/${database}`;
    for (const options of [{ redis: given }, { redis: () => new Redis(given, { lazyConnect: true }) }]) {
      const message = await messageOf(options);
      expect(message).toContain(`127.0.0.1:${redis.port}: it refused the database: `);
      expect(message).toMatch(refusal);
      expect(message).toContain(advice);
    }
  },
);

const CLIENTS: [name: string, to: (host: string, port: number, tls?: object) => RedisSource][] = [
  ['ioredis', (host, port, tls) => ({ host, port, ...(tls && { tls }) })],
  ['node-redis', (host, port, tls) => ({ socket: { host, port, ...(tls && { tls: true, ...tls }) } }) as RedisSource],
];

it.each(CLIENTS)('with %s TLS on one side alone, and a certificate that is not trusted, are named', async (_, to) => {
  const { ca, caFile, certFile, keyFile } = certificatesFor('localhost');
  const withTls = await candidatePort();
  const files = ['--tls-cert-file', certFile, '--tls-key-file', keyFile, '--tls-ca-cert-file', caFile];
  const { port } = await redisServer('--tls-port', String(withTls), ...files, '--tls-auth-clients', 'no');
  const refusalOf = (redis: RedisSource) => messageOf({ redis, connectTimeoutMs: 1_000 });
  for (const source of [to('127.0.0.1', port, {}), to('127.0.0.1', withTls)])
    expect(await refusalOf(source)).toContain('TLS (rediss://');
  for (const source of [to('localhost', withTls, {}), to('127.0.0.1', withTls, { ca })])
    expect(await refusalOf(source)).toMatch(/Its TLS certificate is not trusted.*NODE_EXTRA_CA_CERTS/);
});

it('an application that gives up while a client of ioredis connects survives two errors of its socket', async () => {
  const silent = createServer().listen(0);
  onTestFinished(() => void silent.close());
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  let client!: Redis;
  const redis = () => (client = new Redis({ host: '127.0.0.1', port, tls: {}, lazyConnect: true }));
  await messageOf({ redis, connectTimeoutMs: 200 });
  for (const text of ['of the certificate', 'of the server']) client.stream.emit('error', new Error(text));
});
