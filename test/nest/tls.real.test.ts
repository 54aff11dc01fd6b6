import type { RedisSource } from 'nest-redis-lock';
import { expect, it } from 'vitest';
import { openLocks } from '../../lib/compose/open-locks.js';
import { candidatePort } from '../../servers/candidate-port.js';
import { certificatesFor } from '../support/certificates.js';
import { RedisServer } from '../support/redis-server.js';

interface Ports {
  readonly plain: number;
  readonly withTls: number;
}

async function serve(work: (ports: Ports, ca: string) => Promise<void>): Promise<void> {
  const { ca, caFile, certFile, keyFile } = certificatesFor('localhost');
  const withTls = await candidatePort();
  const files = ['--tls-cert-file', certFile, '--tls-key-file', keyFile, '--tls-ca-cert-file', caFile];
  const server = await RedisServer.start({
    args: ['--tls-port', String(withTls), ...files, '--tls-auth-clients', 'no'],
  });
  try {
    await work({ plain: server.port, withTls }, ca);
  } finally {
    await server.stop();
  }
}

/** Why an application with this Redis does not start. */
const refusalOf = (redis: RedisSource): Promise<string> =>
  openLocks({ redis, connectTimeoutMs: 1_000 }).then(
    () => expect.fail('it starts'),
    (error: Error) => error.message,
  );

const CLIENTS: [name: string, to: (host: string, port: number, tls?: object) => RedisSource][] = [
  ['ioredis', (host, port, tls) => ({ host, port, ...(tls && { tls }) })],
  ['node-redis', (host, port, tls) => ({ socket: { host, port, ...(tls && { tls: true, ...tls }) } }) as RedisSource],
];

it.each(CLIENTS)('with %s TLS against a Redis without it, and none against one with it, are named', (_, to) =>
  serve(async ({ plain, withTls }) => {
    const refusals = [await refusalOf(to('127.0.0.1', plain, {})), await refusalOf(to('127.0.0.1', withTls))];
    for (const message of refusals) expect(message).toContain('TLS (rediss://');
  }),
);

it.each(CLIENTS)('with %s an authority that nobody trusts, and a wrong host name, are named', (_, to) =>
  serve(async ({ withTls }, ca) => {
    const refusals = [await refusalOf(to('localhost', withTls, {})), await refusalOf(to('127.0.0.1', withTls, { ca }))];
    for (const message of refusals) expect(message).toMatch(/Its TLS certificate is not trusted.*NODE_EXTRA_CA_CERTS/);
    const { service } = await openLocks({ redis: to('localhost', withTls, { ca }), connectTimeoutMs: 30_000 });
    await service.onApplicationShutdown();
  }),
);
