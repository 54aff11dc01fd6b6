import { Cluster } from 'ioredis';
import { expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { haveWaited, queued, subscribers } from '../support/queue.js';
import { proxyTo, redisCluster } from '../support/stage.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';
import { contender, shareOf } from './contender.js';

const { server, open, ownerOf, untilQueued } = await sceneOfFile();

it.each([true, false])(
  'a process with a dead subscription listens again to a Cluster (sharded: %s) [G104]',
  async (sharded) => {
    const cluster = await redisCluster();
    if (!sharded) await cluster.forbid();
    const proxies = await Promise.all(cluster.nodes.map(proxyTo));
    const natMap = Object.fromEntries(
      cluster.nodes.map(({ port }, index) => [`127.0.0.1:${port}`, { host: '127.0.0.1', port: proxies[index]!.port }]),
    );
    const services = await Promise.all(
      [{ natMap }, {}].map((options) =>
        openLocks({ redis: () => new Cluster([{ host: '127.0.0.1', port: cluster.nodes[0]!.port }], options) }),
      ),
    );
    const listening = async () =>
      (await Promise.all(cluster.nodes.map((node) => subscribers(node)))).reduce((sum, count) => sum + count);
    const [victim, other] = services.map((locks) => contender(locks, 'half-open'));
    await until(async () => (await listening()) === 2, { what: 'both listen' });
    for (const proxy of proxies) proxy.hideCloses();
    for (const node of cluster.nodes) await node.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await until(async () => (await listening()) === 2, { what: 'both listen again' });
    const had = victim!.turns;
    await until(() => victim!.turns >= had + 5, { what: 'it has turns again' });
    expect(await shareOf(victim!, [other!], 10)).toBeGreaterThan(0.5);
  },
);

it('a process that may not subscribe again is granted the lock without a message [G106]', async () => {
  await server.command('ACL', 'SETUSER', 'deafened', 'on', '>secret', '~*', '&*', '+@all');
  const url = server.url.replace('//', '//deafened:secret@');
  const [deafened, others] = [await openLocks({ redis: url }), await open()];
  await haveWaited(server, deafened);
  const holder = await others.acquire('deafened');
  const waiting = deafened.acquire('deafened', { waitMs: 60_000 });
  await untilQueued('deafened');
  const lastSign = async () => String(await server.command('ZRANGE', 'lock:{deafened}:queue', 0, 0)).charAt(0);
  expect(await lastSign()).toBe('h');
  await server.command('ACL', 'SETUSER', 'deafened', '-subscribe');
  await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await until(async () => (await lastSign()) === 'u', { what: 'it waits to be granted unheard' });
  expect(await queued(server, 'deafened')).toBe(1);
  await holder.release();
  const owner = await ownerOf('deafened');
  expect(owner).not.toBe(holder.owner);
  const lock = await waiting;
  expect(lock.owner).toBe(owner);
  await lock.release();
});
