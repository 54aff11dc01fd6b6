import { Redis, type RedisOptions } from 'ioredis';
import { createClient } from 'redis';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import type { IoredisClient } from 'nest-redis-lock';
import type { NodeRedisClient } from '../../lib/stores/redis/client/source.js';
import { ACQUIRE } from '../../lib/stores/redis/scripts/lua.js';
import { letVote } from '../support/let-vote.js';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { acquireOn, claimOn, connected, freshKey, granted, opened, placeOf, releaseOn } from '../support/claims.js';
import { counterOn, ownerOn } from '../support/stored.js';

describe('Clients', () => {
  let server: RedisServer;
  let backend: LockBackend;
  const clients: Redis[] = [];
  /** Three addresses of the one server, at which its connections can be counted. */
  let doors: TcpProxy[];

  beforeAll(async () => {
    server = await RedisServer.start();
    await letVote([server]);
    doors = await Promise.all([1, 2, 3].map(() => TcpProxy.start(server.port)));
  });
  afterEach(async () => {
    await backend.close();
    for (const client of clients.splice(0)) client.disconnect();
  });
  afterAll(async () => {
    await Promise.all(doors.map((door) => door.stop()));
    await server.stop();
  });

  const client = (options: RedisOptions = {}): Redis => {
    const made = new Redis({ port: server.port, host: '127.0.0.1', ...options });
    clients.push(made);
    return made;
  };
  const connections = async () => ((await server.command('CLIENT', 'LIST')) as string).trim().split('\n').length;
  const connectionsLeft = (count: number) =>
    until(async () => (await connections()) === count, { what: `${count} connections are left` });

  it('of the application that send a lost acquire again by themselves are granted one lock with one token', async () => {
    const proxy = await TcpProxy.start(server.port);
    backend = await connected({ redis: client({ port: proxy.port }), commandTimeoutMs: 10_000 });
    const claim = claimOn(freshKey());
    await granted(backend, claim); // the script is known to the server
    await releaseOn(backend, claim);
    const cut = proxy.cutAfterRequest(ACQUIRE.sha);
    const { fencingToken } = await granted(backend, claim);
    await cut;
    expect(await counterOn(server)).toBe(fencingToken);
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    expect(await server.command('EXISTS', `lock:{${claim.key}}`)).toBe(0);
    await proxy.stop();
  });

  it('of the application put the locks behind their key prefix', async () => {
    backend = await connected({ redis: client({ keyPrefix: 'app:' }), keyPrefix: 'locks' });
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    expect(await server.keys('app:locks:*')).toEqual(['app:locks:fence', `app:locks:{${claim.key}}`]);
    await releaseOn(backend, claim);
  });

  it('of the application are left as they were, and usable', async () => {
    const handed = doors.map(({ port }, index) => client({ port, lazyConnect: index > 0 }));
    await handed[0]!.ping();
    const picture = () =>
      handed.map((each) => ({
        listeners: each.eventNames().map((event) => [event, each.listenerCount(event)]),
        functions: Object.getOwnPropertyNames(each).filter((name) => typeof Reflect.get(each, name) === 'function'),
        scripts: { ...(each as unknown as { scriptsSet: object }).scriptsSet },
      }));
    const before = picture();
    backend = await connected({ redlock: handed, commandTimeoutMs: 10_000 });
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    await releaseOn(backend, claim);
    await backend.close();
    expect(picture()).toEqual(before);
    expect(await Promise.all(handed.map((each) => each.ping()))).toEqual(['PONG', 'PONG', 'PONG']);
  });

  it.each([
    ['URLs', ({ url }: TcpProxy) => url],
    ['options', ({ port }: TcpProxy) => ({ host: '127.0.0.1', port })],
    [
      'functions',
      ({ url }: TcpProxy) =>
        () =>
          new Redis(url),
    ],
    [
      'functions that take their time',
      ({ url }: TcpProxy) =>
        async () =>
          new Redis(url),
    ],
  ])('made from %s are closed', async (_name, source) => {
    await connectionsLeft(1); // the one that counts them
    backend = await connected({ redlock: doors.map((door) => source(door)) });
    await connectionsLeft(4);
    await backend.close();
    await connectionsLeft(1);
  });

  it('made here give a connection up that does not answer, and make it anew; those of the application do not', async () => {
    const [own, handed] = [doors[0]!, doors[1]!];
    backend = await connected({ redis: own.url, commandTimeoutMs: 50 });
    const client = new Redis(handed.url);
    clients.push(client);
    const other = await connected({ redis: client, commandTimeoutMs: 50 });
    const made = [own.made, handed.made];
    for (const door of [handed, own]) door.hold();
    for (const each of [other, backend]) {
      expect(await acquireOn(each, claimOn(freshKey()))).toMatchObject({ status: 'unavailable' });
    }
    await until(() => own.made > made[0]!, { what: 'the connection is made anew' });
    expect(handed.made).toBe(made[1]);
    for (const door of [handed, own]) door.release();
    const acquired = async () => (await acquireOn(backend, claimOn(freshKey()))).status === 'acquired';
    await until(acquired, { what: 'it is of use' });
    await other.close();
  });

  it('made here give a connection up that was accepted and is never answered, and make it anew', async () => {
    const door = doors[0]!;
    backend = await connected({ redis: door.url, commandTimeoutMs: 50 });
    const { made } = door;
    door.dropReplies();
    door.cut();
    await until(() => door.made > made, { what: 'the connection is made anew, and not answered' });
    await until(() => door.made > made + 1, { what: 'it is made once more' });
    door.passReplies();
    const acquired = async () => (await acquireOn(backend, claimOn(freshKey()))).status === 'acquired';
    await until(acquired, { what: 'it is of use' });
  });

  it.each<[client: string, clientOf: (url: string) => { client: IoredisClient | NodeRedisClient; close(): void }]>([
    [
      'ioredis',
      (url) => {
        const made = new Redis(url, { socketTimeout: 5_000, keepAlive: 10_000 }).on('error', () => {});
        return { client: made, close: () => made.disconnect() };
      },
    ],
    [
      'node-redis',
      (url) => {
        // As docs/clients.md says.
        const reconnectStrategy = (retries: number) => Math.min(retries * 50, 1_000);
        const socket = { socketTimeout: 15_000, reconnectStrategy };
        const made = createClient({ url, pingInterval: 5_000, socket }).on('error', () => {});
        return { client: made, close: () => made.destroy() };
      },
    ],
  ])(
    'a client of %s of the application with a socketTimeout gives up a connection that does not answer, and locks can be acquired again [G55]',
    async (_, clientOf) => {
      const door = doors[0]!;
      const { client: handed, close } = clientOf(door.url);
      onTestFinished(close);
      backend = await connected({ redis: handed, commandTimeoutMs: 50 });
      const made = door.made;
      door.hold();
      expect(await acquireOn(backend, claimOn(freshKey()))).toMatchObject({ status: 'unavailable' });
      await until(() => door.made > made, { what: 'the connection is made anew' });
      door.release();
      const acquired = async () => (await acquireOn(backend, claimOn(freshKey()))).status === 'acquired';
      await until(acquired, { what: 'it is of use' });
    },
  );

  it('made before one could not be made are closed', async () => {
    backend = await opened({ memory: true });
    const made: Redis[] = [];
    const make = () => {
      made.push(new Redis(server.url));
      return made.at(-1)!;
    };
    const broken = (): Redis => {
      throw new Error('no configuration');
    };
    await expect(opened({ redlock: [make, broken, make] })).rejects.toThrow('no configuration');
    expect(made).toHaveLength(2);
    await until(() => made.every(({ status }) => status === 'end'), { what: 'both clients are closed' });
    await connectionsLeft(1);
    await expect(opened({ redis: () => ({}) as Redis })).rejects.toThrow(
      'must return a client of ioredis or node-redis',
    );
  });

  it.each([true, false])('are closed only when releases under way have run (script known: %s)', async (known) => {
    backend = await connected({ redis: server.url });
    const claims = Array.from({ length: 3 }, () => claimOn(freshKey()));
    await Promise.all(claims.map((claim) => granted(backend, claim)));
    await server.command('SCRIPT', 'FLUSH');
    await releaseOn(backend, claims[0]!);
    if (!known) await server.command('SCRIPT', 'FLUSH');
    const releases = claims.slice(1).map((claim) => releaseOn(backend, claim));
    await backend.close();
    expect(await Promise.all(releases)).toEqual([{ status: 'released' }, { status: 'released' }]);
    const left = await Promise.all(claims.map(({ key }) => server.command('EXISTS', `lock:{${key}}`)));
    expect(left).toEqual([0, 0, 0]);
  });

  it('are closed only when places that are given up have left their queues', async () => {
    backend = await connected({ redis: server.url });
    const holder = claimOn(freshKey());
    await granted(backend, holder);
    const { key, owner, ttlMs } = claimOn(holder.key);
    const place = placeOf(owner);
    expect(await acquireOn(backend, { key, owner, ttlMs }, place)).toMatchObject({ queued: true });
    await server.command('SCRIPT', 'FLUSH');
    backend.waitQueue!.leave(key, place);
    await backend.close();
    expect(await server.command('EXISTS', `lock:{${key}}:queue`)).toBe(0);
    expect(await ownerOn(server, key)).toBe(holder.owner);
  });

  it('may be closed twice, and before they ever connected', async () => {
    backend = await opened({ redis: server.url });
    await backend.close();
    await backend.close();
    expect(await acquireOn(backend, claimOn(freshKey()))).toMatchObject({ status: 'unavailable' });
  });

  it('that meet a lock without a ttl, which another program wrote, are told that it does not end', async () => {
    backend = await connected({ redis: server.url });
    const key = freshKey();
    await server.command('SET', `lock:{${key}}`, 'by hand');
    const foreign = { owner: 'by hand', remainingMs: Infinity };
    expect(await acquireOn(backend, claimOn(key))).toMatchObject({ status: 'contended', ...foreign, queued: false });
    expect(await backend.inspect(key)).toEqual({ holders: [foreign] });
    expect(await backend.forceRelease(key)).toEqual({ from: ['by hand'] });
  });
});
