import { expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { haveWaited, untilQueued as untilQueuedOn, untilSubscribers } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { redisServer } from '../support/stage.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

/** An unconfirmed grant lasts for 2 s, and a waiting call checks after at most 1 s; the rest is for slow machines. */
const AT_MOST_MS = 8_000;

const { server, open, ownerOf, untilQueued } = await sceneOfFile();

/**
 * Lets three services wait for a lock that another process holds, with two calls each.
 * @returns `served` resolves when all of them have had their turn, with the largest number of simultaneous holders
 */
async function crowd(server: RedisServer, key: string, url = server.url) {
  const open = () => openLocks({ redis: url, commandTimeoutMs: 5_000 });
  const [services, holding] = [await Promise.all([open(), open(), open()]), await open()];
  const holder = await holding.acquire(key);
  let [inside, most] = [0, 0];
  const calls = services.flatMap((locks) =>
    [1, 2].map(() =>
      locks.withLock(key, { waitMs: 60_000, onLost: 'ignore' }, async () => {
        most = Math.max(most, ++inside);
        await Promise.resolve();
        inside--;
      }),
    ),
  );
  await untilQueuedOn(server, key, 3);
  return { holding, holder, served: Promise.all(calls).then(() => most) };
}

async function within<T>(limitMs: number, served: Promise<T>): Promise<T> {
  const from = performance.now();
  const value = await served;
  expect(performance.now() - from).toBeLessThan(limitMs);
  return value;
}

it('a subscription that was cut is renewed, and locks are handed over as before [G121]', async () => {
  const [locks, others] = [await open(), await open()];
  await haveWaited(server, locks);
  const holder = await others.acquire('cut');
  const waiting = locks.acquire('cut');
  await untilQueued('cut');
  await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  const asked = async () => ((await server.calls()).evalsha ?? 0) > 0;
  await server.resetCalls();
  await untilSubscribers(server, 1);
  await until(asked, { what: 'it asks whether it missed its turn' });
  await holder.release();
  const owner = await ownerOf('cut');
  expect(owner).toBe((await waiting).owner);
});

it('the waiters of several services are all served after a restart that lost everything [G122]', async () => {
  const restarted = await redisServer();
  const { served } = await crowd(restarted, 'restarted');
  await restarted.restart();
  expect(await within(AT_MOST_MS, served)).toBe(1);
});

it('the waiters of several services are all served after a failover to a replica, which knows the queue [G123]', async () => {
  const primary = await RedisServer.start();
  const replica = await RedisServer.start({ args: ['--replicaof', `127.0.0.1 ${primary.port}`] });
  const proxy = await TcpProxy.start(primary.port);
  onTestFinished(() => Promise.all([proxy.stop(), primary.stop(), replica.stop()]).then(() => {}));
  const linked = async () => String(await replica.command('INFO', 'replication')).includes('link_status:up');
  await until(linked, { what: 'the replica follows' });
  const { holding, holder, served } = await crowd(primary, 'failover', proxy.url);
  await untilQueuedOn(replica, 'failover', 3);
  await primary.kill();
  await replica.command('REPLICAOF', 'NO', 'ONE');
  proxy.retarget(replica.port);
  await untilSubscribers(replica, 3);
  await until(() => holding.isLocked('failover').catch(() => false), { what: 'its holder is connected, too' });
  expect(await holder.release()).toBe(true);
  expect(await served).toBe(1);
});
