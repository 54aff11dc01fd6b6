import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { LockService, RedisLockSettings } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { haveWaited, untilSubscribers } from '../support/queue.js';
import { redlockNodes } from '../support/redlock-nodes.js';
import { proxyTo } from '../support/stage.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';
import { contender, HOLD_MS, shareOf } from './contender.js';

const { server, open, untilQueued } = await sceneOfFile();

it.each([false, true])('a process with a dead subscription gets its turns again (fair: %s) [G102]', async (fair) => {
  const proxy = await proxyTo(server);
  const settings: RedisLockSettings = { fair };
  const services = [
    await openLocks({ redis: proxy.url, ...settings }),
    await open({ ...settings }),
    await open({ ...settings }),
  ];
  const [victim, ...others] = services.map((locks) => contender(locks, `half-open ${fair}`));
  await untilSubscribers(server, 3);
  await until(() => [victim!, ...others].every(({ turns }) => turns > 0), { what: 'each has turns' });
  expect(await shareOf(victim!, others, 10)).toBeGreaterThan(0.5);
  proxy.hideCloses();
  await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  const had = victim!.turns;
  await until(() => victim!.turns >= had + 5, { what: 'it has turns again' });
  expect(await shareOf(victim!, others, 30)).toBeGreaterThan(0.5);
});

it.each([3, 1])('a process with %i dead subscriptions listens again to the nodes of a Redlock [G103]', async (dead) => {
  const nodes = await redlockNodes(3);
  const proxies = await Promise.all(nodes.servers.map(proxyTo));
  const services = [
    await openLocks({ redlock: proxies.map(({ url }) => url), commandTimeoutMs: 1_000 }),
    await openLocks({ redlock: nodes.urls, commandTimeoutMs: 1_000 }),
  ];
  for (const locks of services) contender(locks, 'half-open', HOLD_MS / 2); // otherwise the same one would always be first
  for (const node of nodes.servers) await untilSubscribers(node, 2);
  // For this long after a message, a subscription is not doubted, and the messages of two nodes suffice.
  const lock = await services[1]!.acquire('half-open', { waitMs: 60_000 });
  await sleep(600);
  for (const proxy of proxies) proxy.hideCloses();
  for (const node of nodes.servers.slice(0, dead)) await node.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await lock.release();
  for (const node of nodes.servers) await untilSubscribers(node, 2);
});

it('a process with a dead subscription keeps its place in the queue of a fair lock, although a release found that nobody hears it [G105]', async () => {
  const proxy = await proxyTo(server);
  const fair = true;
  const deaf = await openLocks({ redis: proxy.url, fair });
  const [holding, second, late] = await Promise.all([1, 2, 3].map(() => open({ fair })));
  await haveWaited(server, deaf);
  const holder = await holding!.acquire('place');
  const order: string[] = [];
  const call = (locks: LockService, name: string) =>
    locks.acquire('place', { waitMs: 60_000 }).then((lock) => {
      order.push(name);
      return lock;
    });
  const victims = call(deaf, 'first');
  await untilQueued('place');
  const seconds = call(second!, 'second');
  await untilQueued('place', 2);
  proxy.hideCloses();
  await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await holder.release(); // it passes over that process
  const next = await seconds;
  const lates = call(late!, 'late');
  await untilQueued('place', 2); // it is back
  await untilSubscribers(server, 3); // all calls that wait, or waited, listen again
  await next.release();
  await (await victims).release();
  await (await lates).release();
  expect(order).toEqual(['second', 'first', 'late']);
});
