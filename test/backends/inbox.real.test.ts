import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { RedisCluster } from '../support/redis-cluster.js';
import { redisServer } from '../support/stage.js';
import { SUBSCRIPTION, TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { inboxOn } from './inbox-on.js';

describe('an inbox', () => {
  it.each<RedisOptions>([
    { autoResubscribe: true },
    { autoResubscribe: false },
    { keyPrefix: 'app:' },
    { db: 2 },
    { protocol: 2 },
    { protocol: 3 },
  ])('tells that it ceased and began to listen when its connection breaks (%o)', async (options) => {
    const server = await redisServer();
    const client = new Redis({ host: '127.0.0.1', port: server.port, ...options });
    const { inbox, heard, changes, isOpen } = inboxOn(client);
    inbox.open();
    await isOpen();
    await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await until(() => changes.length >= 3, { what: 'it listens again' });
    expect(changes).toEqual([true, false, true]);
    await server.command('PUBLISH', 'inbox:me', 'after the break');
    await until(() => heard.length > 0, { what: 'it hears' });
    expect(heard).toEqual(['after the break']);
  });

  it('that may not subscribe stays closed, and says so once', async () => {
    const server = await redisServer();
    await server.command('ACL', 'SETUSER', 'deaf', 'on', '>secret', 'allkeys', 'resetchannels', 'allcommands');
    const { inbox, source, changes, forbidden } = inboxOn(
      new Redis({ host: '127.0.0.1', port: server.port, username: 'deaf', password: 'secret' }),
    );
    await source.ping();
    await server.resetCalls();
    inbox.open();
    const refused = async () => (await server.command('ACL', 'LOG')) as unknown[];
    await until(async () => (await refused()).length > 0, { what: 'the server has refused it' });
    await until(() => forbidden.length > 0, { what: 'it says so' });
    inbox.open();
    await source.ping();
    expect([inbox.isOpen(), changes, forbidden]).toEqual([false, [], ['subscribe']]);
  });

  // On one server the time limit of the client's own connection ends it.
  it('of a Cluster whose subscription is never answered subscribes anew on another connection', async () => {
    const cluster = await RedisCluster.start();
    onTestFinished(() => cluster.stop());
    const proxies = await Promise.all(cluster.nodes.map(({ port }) => TcpProxy.start(port)));
    onTestFinished(async () => void (await Promise.all(proxies.map((proxy) => proxy.stop()))));
    const to = proxies.map(({ port }) => ({ host: '127.0.0.1', port }));
    const natMap = Object.fromEntries(cluster.nodes.map(({ port }, index) => [`127.0.0.1:${port}`, to[index]!]));
    const source = new Cluster(to, { natMap });
    const { inbox, heard, changes } = inboxOn(source);
    await source.ping();
    for (const proxy of proxies) proxy.mutesAfter = SUBSCRIPTION;
    inbox.open();
    await until(() => proxies.some(({ hasMuted }) => hasMuted), { what: 'it subscribes' });
    for (const proxy of proxies) proxy.mutesAfter = undefined;
    await until(
      () => {
        inbox.open(); // as whoever waits does each second
        return inbox.isOpen();
      },
      { what: 'it listens', timeoutMs: 40_000 },
    );
    await cluster.nodes[0]!.command('PUBLISH', 'inbox:me', 'a ticket');
    await until(() => heard.length > 0, { what: 'it hears' });
    expect([heard, changes]).toEqual([['a ticket'], [true]]);
  });
});
