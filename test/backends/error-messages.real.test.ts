import { inspect } from 'node:util';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RedisSource } from 'nest-redis-lock';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { acquireOn, claimOn, extendOn, freshKey, opened } from '../support/claims.js';

const SECRET = 'sesame-0pen';
const NAME = 'ali-baba';

/** All that a log could print of it: hidden properties, causes, stacks. */
function everythingOf(value: unknown): string {
  const properties = inspect(value, { depth: Infinity, showHidden: true, getters: true });
  const json = JSON.stringify(value, (_key, part: unknown) =>
    part instanceof Error ? { ...part, message: part.message, stack: part.stack, cause: part.cause } : part,
  );
  return `${properties}\n${json}\n${String(value)}`;
}

describe('An error', () => {
  let needsAdmission: RedisServer;
  let withoutAuth: RedisServer;
  let dead: RedisServer;

  beforeAll(async () => {
    [needsAdmission, withoutAuth, dead] = await Promise.all([
      RedisServer.start({ args: ['--user', NAME, 'on', '>another', '~*', '&*', '+@all'] }),
      // Repeats the arguments of the commands it does not know, as proxies and old servers do.
      RedisServer.start({ args: ['--rename-command', 'AUTH', '', '--rename-command', 'HELLO', ''] }),
      RedisServer.start(),
    ]);
    await needsAdmission.command('CONFIG', 'SET', 'requirepass', 'another');
    await dead.kill();
  });
  afterAll(() => Promise.all([needsAdmission, withoutAuth, dead].map((server) => server.stop())));

  const withSecret = ({ port }: RedisServer) => `redis://${NAME}:${SECRET}@127.0.0.1:${port}`;

  /** What each operation makes of servers that cannot be used, once it is known what is wrong with them. */
  async function failures(sources: RedisSource[], ...problems: RegExp[]): Promise<unknown[]> {
    const backend = await opened(
      sources.length === 1 ? { redis: sources[0]!, commandTimeoutMs: 30 } : { redlock: sources, commandTimeoutMs: 30 },
    );
    const claim = claimOn(freshKey());
    const caught = (promise: Promise<unknown>) => promise.catch((error: unknown) => error);
    const connecting = await until(
      async () => {
        const error = (await caught(backend.connect(30))) as Error;
        return problems.every((problem) => problem.test(error.message)) ? error : undefined;
      },
      { what: `the error says ${problems.join(' and ')}` },
    );
    const results = [
      connecting,
      await acquireOn(backend, claim),
      await extendOn(backend, claim),
      await caught(backend.inspect(claim.key)),
      await caught(backend.forceRelease(claim.key)),
    ];
    await backend.close();
    return results;
  }

  it.each([
    ['the password is wrong', () => needsAdmission, /WRONGPASS/],
    ['the server does not know AUTH', () => withoutAuth, /unknown command/],
    ['nobody listens', () => dead, /ECONNREFUSED/],
  ])('names the host and the port, and holds no password, when %s', async (_when, server, problem) => {
    const { port } = server();
    for (const source of [
      withSecret(server()),
      { host: '127.0.0.1', port, username: NAME, password: SECRET },
      { host: '127.0.0.1', port, username: NAME, password: SECRET, protocol: 2 as const },
      () => new Redis({ host: '127.0.0.1', port, username: NAME, password: SECRET, enableOfflineQueue: false }),
    ]) {
      const results = await failures([source], problem);
      for (const result of results) {
        expect(everythingOf(result)).toContain(`127.0.0.1:${port}`);
        expect(everythingOf(result)).not.toContain(SECRET);
        expect(everythingOf(result)).not.toContain(NAME);
      }
    }
  });

  it('names each node of a Redlock, and holds no password', async () => {
    const servers = [needsAdmission, withoutAuth, dead];
    const results = await failures(servers.map(withSecret), /WRONGPASS/, /unknown command/, /ECONNREFUSED/);
    for (const result of results) {
      for (const { port } of servers) expect(everythingOf(result)).toContain(`127.0.0.1:${port}`);
      expect(everythingOf(result)).not.toContain(SECRET);
    }
  });

  it('holds no password of a client of the application either', async () => {
    const { port } = needsAdmission;
    const client = new Redis({ host: '127.0.0.1', port, username: NAME, password: SECRET });
    client.on('error', () => {});
    const results = await failures([client], /not connected/);
    client.disconnect();
    for (const result of results) {
      expect(everythingOf(result)).toContain(`127.0.0.1:${port}`);
      expect(everythingOf(result)).not.toContain(SECRET);
    }
  });

  it('says that the password is missing', async () => {
    const [, acquiring] = await failures([`redis://127.0.0.1:${needsAdmission.port}`], /NOAUTH/);
    expect(acquiring).toMatchObject({
      causes: [expect.objectContaining({ problem: expect.stringMatching(/NOAUTH/) })],
    });
  });

  it('says what was wrong with each address of a host that has several', async () => {
    const [connecting] = await failures([`redis://localhost:${dead.port}`], /ECONNREFUSED/);
    expect((connecting as Error).message).toContain(`localhost:${dead.port}: not connected`);
  });
});
