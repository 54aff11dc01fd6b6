import { Cluster } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { proxyTo, redisCluster } from '../support/stage.js';
import { SUBSCRIPTION } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { inboxOn } from './inbox-on.js';

describe('an inbox', () => {
  // On one server, the time limit of the client's own connection ends it.
  it('of a Cluster whose subscription is never answered subscribes again on another connection', async () => {
    const cluster = await redisCluster();
    const proxies = await Promise.all(cluster.nodes.map(proxyTo));
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
        inbox.open(); // as a waiting call does each second
        return inbox.isOpen();
      },
      { what: 'it listens', timeoutMs: 40_000 },
    );
    await cluster.nodes[0]!.command('PUBLISH', 'inbox:me', 'a ticket');
    await until(() => heard.length > 0, { what: 'it hears' });
    expect([heard, changes]).toEqual([['a ticket'], [true]]);
  });
});
