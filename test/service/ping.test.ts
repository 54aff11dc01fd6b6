import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

let redis: RedisServer;
let nodes: RedlockNodes;
beforeAll(async () => {
  [redis, nodes] = await Promise.all([RedisServer.start(), RedlockNodes.start(3)]);
});
afterAll(() => Promise.all([redis.stop(), nodes.stop()]));

const connections = async (server: RedisServer) =>
  ((await server.command('CLIENT', 'LIST')) as string).trim().split('\n').length;

const votes = (locks: LockService, voting: number) =>
  until(
    async () => {
      const ping = await locks.ping();
      return ping.nodes.voting === voting ? ping : undefined;
    },
    { what: `${voting} nodes vote` },
  );

it('a ping asks each server once, on the connection of the locks, and leaves nothing there [G440]', async () => {
  const one = await openLocks({ redis: redis.url });
  const three = await openLocks({ redlock: nodes.urls }, 'three');
  await votes(three, 3);
  const servers = [redis, ...nodes.servers];
  await one.ping(); // the script is known from now on
  const before = await Promise.all(servers.map(connections));
  await Promise.all(servers.map((server) => server.resetCalls()));

  expect(await one.ping()).toEqual({
    registration: 'default',
    available: true,
    closing: false,
    nodes: { voting: 1, of: 1 },
    problems: [],
  });
  expect(await three.ping()).toMatchObject({ registration: 'three', available: true, nodes: { voting: 3, of: 3 } });

  for (const server of servers) {
    const { evalsha, eval: sent, ...others } = await server.calls();
    expect([evalsha, sent]).toEqual([1, undefined]);
    expect(Object.keys(others).filter((name) => !['config|resetstat', 'info'].includes(name))).toEqual(['get']);
  }
  expect(await Promise.all(servers.map(connections))).toEqual(before);
  expect(await redis.keys()).toEqual([]);
});

it('a ping of a Redis that hangs, or is gone, ends in time, says what is wrong, and does not reject [G441]', async () => {
  const server = await redisServer();
  const locks = await openLocks({ redis: server.url, commandTimeoutMs: 200 });
  const name = `127.0.0.1:${server.port}`;
  server.pause();
  const since = performance.now();
  const hanging = await locks.ping();
  expect(performance.now() - since).toBeLessThan(4_000);
  expect(hanging).toMatchObject({ available: false, closing: false, nodes: { voting: 0, of: 1 } });
  expect(hanging.problems).toEqual([expect.objectContaining({ node: name, problem: 'no answer within 200 ms' })]);

  await server.kill();
  const gone = await until(
    async () => {
      const ping = await locks.ping();
      return ping.problems[0]?.problem.startsWith('not connected') ? ping : undefined;
    },
    { what: 'the connection is gone' },
  );
  expect(gone).toMatchObject({ available: false, nodes: { voting: 0, of: 1 }, problems: [{ node: name }] });

  await server.restart();
  await until(async () => (await locks.ping()).available, { what: 'it is back' });
});

it('a ping of a Redlock needs the votes of a majority, and names the nodes that do not vote [G442]', async () => {
  const locks = await openLocks({ redlock: nodes.urls });
  await votes(locks, 3);
  onTestFinished(() => nodes.resume());
  nodes.pause(0);
  const minority = await votes(locks, 2);
  expect(minority.available).toBe(true);
  expect(minority.problems.map(({ node }) => node)).toEqual(nodes.names(0));
  nodes.pause(1);
  const majority = await votes(locks, 1);
  expect(majority.available).toBe(false);
  expect(majority.problems.map(({ node }) => node)).toEqual(nodes.names(0, 1));
  nodes.resume();
  expect(await votes(locks, 3)).toMatchObject({ available: true, problems: [] });
});

it('a ping of a Redlock whose nodes were just started says that they do not vote yet [G443]', async () => {
  const locks = await openLocks({ redlock: nodes.urls, keyPrefix: 'fresh', lazyConnect: true });
  const waits = expect.objectContaining({ problem: expect.stringMatching(/^it votes in \d+ ms/) });
  await until(async () => (await locks.ping()).problems.every(({ problem }) => problem.startsWith('it votes in')), {
    what: 'the nodes are checked',
  });
  expect(await locks.ping()).toMatchObject({
    available: false,
    nodes: { voting: 0, of: 3 },
    problems: [waits, waits, waits],
  });
});
