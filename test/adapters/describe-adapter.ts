import { createHash, randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { CommandFault, RedisClient, RedisDriver, ScriptCall } from '../../lib/stores/redis/client/redis-client.js';
import { clusterSlot, masterOf } from '../support/cluster-slots.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { proxyTo, redisCluster, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

/** A package for Redis, and how an application creates clients with it. */
export interface Package {
  driver: RedisDriver;
  /** A client of the application. @param options of the package */
  clientOf(url: string): { client: object; close(): void };
  clusterOf(urls: string[]): { client: object; close(): void };
  /** Options of the package for a server, with a prefix for all keys. */
  withPrefix(url: string, keyPrefix: string): object;
}

/** Ignores everything. */
export const NOT_LISTENING = () => {};

/** The duties of every adapter, as its port describes them. */
export function describeAdapter(name: string, { driver, clientOf, clusterOf, withPrefix }: Package): void {
  describe(`The adapter for ${name}`, () => {
    it('connects on request, reports each step, and reconnects after its server was gone', async () => {
      const server = await redisServer();
      const { client, told } = await opened(driver, server.url);
      expect([client.isReady, told]).toEqual([false, []]);
      client.connect();
      client.connect();
      await until(() => client.isReady, { what: 'it is ready' });
      expect(told).toEqual(['accepted', 'ready']);
      const { generation } = client;
      await server.kill();
      await until(() => told.includes('closed'), { what: 'it tells that the connection broke' });
      expect(client.isReady).toBe(false);
      await until(() => client.failure?.problem.includes('ECONNREFUSED'), { what: 'it says why' });
      expect(told).toContain('failed');
      await server.restart();
      await until(() => client.isReady, { what: 'it is ready again' });
      expect(client.failure).toBeUndefined();
      expect(client.generation).not.toBe(generation);
      expect(client.isEnded).toBe(false);
    });

    it('closes its own client, and leaves a client of the application as it was', async () => {
      const server = await redisServer();
      const before = await connectionsOf(server);
      const { client } = await opened(driver, server.url);
      await ready(client);
      client.close();
      await until(async () => (await connectionsOf(server)) === before, { what: 'its connection is closed' });
      const { client: given, close } = clientOf(server.url);
      onTestFinished(close);
      const { client: borrowed } = await opened(driver, given);
      await ready(borrowed);
      borrowed.close();
      const { client: after } = await opened(driver, given);
      await ready(after);
      expect(await after.call('PING')).toBe('PONG');
      const { client: owned } = await opened(driver, given, true);
      await ready(owned);
      owned.close();
      await until(async () => (await connectionsOf(server)) === before, { what: 'the function has given it away' });
    });

    it('sends commands in the order in which they were given, and answers in that order, never before it has returned', async () => {
      const { server, client } = await connected();
      const answers: unknown[] = [];
      const script = scriptOf(`
        local count = redis.call('INCR', KEYS[1])
        redis.call('ZADD', KEYS[2], count, ARGV[1])
        return count
      `);
      await server.command('SCRIPT', 'LOAD', script.source);
      let isReturned = false;
      const all = Array.from({ length: 50 }, (_, at) =>
        run(client, script, ['{order}:count', '{order}'], [at]).then((answer) => answers.push([isReturned, answer])),
      );
      isReturned = true;
      await Promise.all(all);
      expect(answers).toEqual(Array.from({ length: 50 }, (_, at) => [true, at + 1]));
      expect(await client.call('ZRANGE', '{order}', 0, -1)).toEqual(Array.from({ length: 50 }, (_, at) => String(at)));
    });

    it('sends the text of a script that the server does not know, if it is still wanted', async () => {
      const { client } = await connected();
      const script = scriptOf(`return ARGV[1] .. ' ${randomUUID()}'`);
      const unwanted = run(client, script, ['k'], ['a'], { isWanted: false });
      await expect(unwanted).rejects.toMatchObject({ kind: 'refused', message: expect.stringMatching(/^NOSCRIPT/) });
      let sentAgain = 0;
      const counted = { sentAgain: () => void sentAgain++ };
      expect(await run(client, script, ['k'], ['a'], counted)).toMatch(/^a /);
      expect(await run(client, script, ['k'], ['b'], counted)).toMatch(/^b /);
      expect(sentAgain).toBe(1);
      await client.call('SET', 'text', 'a');
      const failing = run(client, scriptOf(`return redis.call('ZADD', KEYS[1], 1, 'a')`), ['text'], []);
      await expect(failing).rejects.toMatchObject({ kind: 'refused', message: expect.stringContaining('WRONGTYPE') });
    });

    it('fails commands that come while it has no connection, and does not send them later', async () => {
      const { server, client } = await connected();
      await server.kill();
      await until(() => !client.isReady, { what: 'it knows about it' });
      const script = scriptOf(`return redis.call('SET', KEYS[1], '1')`);
      await expect(run(client, script, ['late'], [])).rejects.toMatchObject({ kind: 'disconnected' });
      await expect(client.call('SET', 'late', '1')).rejects.toMatchObject({ kind: 'disconnected' });
      await server.restart();
      await until(() => client.isReady, { what: 'it is ready again' });
      expect(await client.call('GET', 'late')).toBeNull();
    });

    it('fails commands in flight when its connection breaks, and does not send them again', async () => {
      const server = await redisServer();
      const proxy = await proxyTo(server);
      const { client } = await opened(driver, proxy.url);
      await ready(client);
      const script = scriptOf(`return redis.call('INCR', KEYS[1])`);
      await run(client, script, ['n'], []);
      const cut = proxy.cutAfterRequest('evalsha');
      const broken = run(client, script, ['n'], []);
      await expect(broken).rejects.toMatchObject({ kind: 'disconnected' });
      await cut;
      proxy.hold();
      const held = run(client, script, ['n'], []).catch((error: unknown) => error);
      const call = client.call('INCR', 'n').catch((error: unknown) => error);
      proxy.cut();
      for (const fault of [await held, await call]) expect(fault).toMatchObject({ kind: 'disconnected' });
      proxy.release();
      await until(() => client.isReady, { what: 'it is ready again' });
      expect(await client.call('GET', 'n')).toBe('2');
    });

    it('reconnects on request, and fails the commands in flight', async () => {
      const { server, client, told } = await connected();
      const { generation } = client;
      server.pause();
      const open = client.call('PING').catch((error: unknown) => error);
      client.drop('it does not answer');
      expect(await open).toMatchObject({ kind: 'disconnected' });
      server.resume();
      await until(() => client.isReady && client.generation !== generation, { what: 'it has another connection' });
      expect(told.slice(2)).toContain('closed');
      expect(told.filter((what) => what === 'ready')).toHaveLength(2);
      expect(await client.call('PING')).toBe('PONG');
    });

    it('puts the prefix of the application before the keys of scripts only', async () => {
      const server = await redisServer();
      const { client } = await opened(driver, withPrefix(server.url, 'app:'));
      await ready(client);
      expect(client.topology.keyPrefix).toBe('app:');
      await run(client, scriptOf(`return redis.call('SET', KEYS[1], ARGV[1])`), ['k'], ['k']);
      expect(await server.keys()).toEqual(['app:k']);
      expect(await client.call('GET', 'app:k')).toBe('k');
      const { heard, subscribed } = listening(client, 'news');
      await subscribed();
      expect(await client.messages.publish('news', 'one')).toBe(1);
      await until(() => heard.includes('one'), { what: 'it is heard' });
    });

    it('has further connections, with names of their own', async () => {
      const { server, client } = await connected();
      const another = client.topology.duplicate('another');
      onTestFinished(() => another.close());
      await ready(another);
      expect(String(await server.command('CLIENT', 'LIST'))).toMatch(/ name=another /);
      expect(another.isOwned).toBe(true);
    });

    it('subscribes on a connection of its own, and again after each break', async () => {
      const { server, client } = await connected();
      const { told, heard, subscribed, subscription } = listening(client, 'news');
      await subscribed();
      expect(await client.messages.publish('news', 'one')).toBe(1);
      await until(() => heard.includes('one'), { what: 'it is heard' });
      await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await until(() => told.includes('closed'), { what: 'it reports the break' });
      await until(() => told.filter((what) => what === 'opened').length === 2, { what: 'it is subscribed again' });
      expect(await client.messages.publish('news', 'two')).toBe(1);
      await until(() => heard.includes('two'), { what: 'it is heard' });
      subscription.close();
      await until(async () => (await client.messages.publish('news', 'three')) === 0, { what: 'it has left' });
      expect(heard).toEqual(['one', 'two']);
    });

    it('gives up a connection on which it cannot subscribe in time, subscribes on another one, and stops when it is closed', async () => {
      const { server, client } = await connected();
      server.pause();
      const { told, subscribed, subscription } = listening(client, 'news');
      await until(() => told.includes('closed'), { what: 'it has given up the first' });
      server.resume();
      await subscribed();
      const breaks = () => told.filter((what) => what === 'closed').length;
      const before = breaks();
      await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await until(() => breaks() > before, { what: 'it has broken' });
      subscription.close();
      const other = listening(client, 'others');
      await other.subscribed();
      await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await until(() => other.told.filter((what) => what === 'opened').length === 2, { what: 'time enough' });
      expect(await client.messages.publish('news', 'one')).toBe(0);
    });

    it('subscribes to sharded channels of a master, and reports when its connection is gone', async () => {
      const { cluster, client } = await connectedToCluster();
      const [master] = client.topology.masters();
      const channel = channelOn(cluster, master!.name);
      const [told, heard]: [string[], string[]] = [[], []];
      const hear = (text: string) => heard.push(text);
      const sharded = master!.messages.subscribeSharded('listener', hear, (change) => told.push(change));
      onTestFinished(() => sharded.close());
      await until(() => told.includes('opened'), { what: 'it is open' });
      await sharded.subscribe(channel);
      await master!.messages.publish(channel, 'one', 'sharded');
      await until(() => heard.includes('one'), { what: 'it is heard' });
      sharded.unsubscribe(channel);
      const server = serverOf(cluster, master!.name);
      const left = async () => ((await server.command('PUBSUB', 'SHARDNUMSUB', channel)) as unknown[])[1] === 0;
      await until(left, { what: 'it has left the channel' });
      await master!.messages.publish(channel, 'two', 'sharded');
      await sharded.subscribe(channel);
      await master!.messages.publish(channel, 'three', 'sharded');
      await until(() => heard.includes('three'), { what: 'it is heard again' });
      sharded.unsubscribe(channel);
      await sharded.subscribe(channel); // before the answer
      await master!.messages.publish(channel, 'four', 'sharded');
      await until(() => heard.includes('four'), { what: 'it is heard in a channel that it left and came back to' });
      await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await until(() => told.includes('closed'), { what: 'it reports the break' });
      expect(heard).toEqual(['one', 'three', 'four']);
    });

    it('follows a slot of a Cluster that has moved', async () => {
      const { cluster, client } = await connectedToCluster();
      const { topology } = client;
      expect(topology.isCluster).toBe(true);
      expect([...topology.servers].sort()).toEqual(cluster.nodes.map(({ port }) => `127.0.0.1:${port}`).sort());
      const script = scriptOf(`return redis.call('SET', KEYS[1], ARGV[1])`);
      const slot = clusterSlot('moved');
      const [, from] = topology.routeOf('moved');
      const to = cluster.nodes.find(({ port }) => `127.0.0.1:${port}` !== from)!;
      const id = String(await to.command('CLUSTER', 'MYID'));
      for (const node of cluster.nodes) await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', id);
      expect(await run(client, script, ['moved'], ['there'])).toBe('OK');
      expect(await to.command('GET', 'moved')).toBe('there');
      await until(() => topology.routeOf('moved')[1] === `127.0.0.1:${to.port}`, { what: 'it knows about it' });
      for (const master of topology.masters()) expect(await master.call('PING')).toBe('PONG');
    });

    it('has further connections to the master of a Cluster, which end when they break', async () => {
      const { cluster, client } = await connectedToCluster();
      const [master] = client.topology.masters();
      const another = master!.topology.duplicate('another');
      onTestFinished(() => another.close());
      another.listen(NOT_LISTENING);
      await ready(another);
      const server = serverOf(cluster, master!.name);
      expect(String(await server.command('CLIENT', 'LIST'))).toMatch(/ name=another /);
      await server.kill();
      await until(() => another.isEnded, { what: 'it has ended' });
    });

    it('leaves no connection when it is closed while it connects, to one server or to a Cluster', async () => {
      const cluster = await redisCluster();
      const [node] = cluster.nodes;
      const before = await connectionsOf(node!);
      for (let turns = 0; turns < 8; turns++) {
        const clients = [
          await driver.open(node!.url, 'left'),
          await driver.open(clusterOf([node!.url]).client as never, 'left', true),
        ];
        for (const client of clients) {
          client.listen(NOT_LISTENING);
          client.connect();
        }
        for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
        for (const client of clients) client.close();
      }
      // A client that connects later would be ready after them.
      const { client: last } = await opened(driver, clusterIn(cluster));
      await ready(last);
      const { client: one } = await opened(driver, node!.url);
      await ready(one);
      one.close();
      await until(async () => (await connectionsOf(node!)) <= before + 1, { what: 'only the last one is connected' });
    });

    async function connected() {
      const server = await redisServer();
      const { client, told } = await opened(driver, server.url);
      await ready(client);
      return { server, client, told };
    }

    async function connectedToCluster() {
      const cluster = await redisCluster();
      const { client } = await opened(driver, clusterIn(cluster));
      await ready(client);
      return { cluster, client };
    }

    function clusterIn({ nodes }: RedisCluster): object {
      const { client, close } = clusterOf(nodes.map(({ url }) => url));
      onTestFinished(close);
      return client;
    }
  });
}

/** How an adapter reports refusals: only real servers have users and their rights. */
export function describeRefusals(name: string, { driver }: Package): void {
  describe(`The adapter for ${name}`, () => {
    it('reports what the server refuses, without a password', async () => {
      const server = await redisServer();
      await server.command('ACL', 'SETUSER', 'other', 'on', '>right', '~*', '+@all');
      const wrong = await opened(driver, server.url.replace('//', '//other:hunter2@'));
      wrong.client.connect();
      await until(() => wrong.client.failure?.refused === 'credentials', { what: 'it says that they are wrong' });
      expect(wrong.client.failure!.problem).not.toContain('hunter2');
      await server.command('ACL', 'SETUSER', 'default', 'resetpass', '>secret');
      const none = await opened(driver, server.url);
      none.client.connect();
      await until(() => none.client.failure?.refused === 'login', { what: 'it says that it needs a password' });
    });

    it('reports that it may not subscribe, and does not try again', async () => {
      const server = await redisServer();
      await server.command('ACL', 'SETUSER', 'default', '-subscribe');
      const { client } = await opened(driver, server.url);
      await ready(client);
      const { told } = listening(client, 'news');
      await until(() => told.some((what) => what.startsWith('NOPERM')), { what: 'it is notified' });
    });
  });
}

async function opened(driver: RedisDriver, source: string | object, isOwned = false) {
  const client = await driver.open(source as string, 'test', isOwned);
  onTestFinished(() => client.close());
  const told: string[] = [];
  client.listen((change) => told.push(change));
  return { client, told };
}

async function ready(client: RedisClient): Promise<void> {
  client.connect();
  await until(() => client.isReady, { what: 'it is ready' });
}

async function connectionsOf(server: RedisServer): Promise<number> {
  return String(await server.command('CLIENT', 'LIST'))
    .trim()
    .split('\n').length;
}

function scriptOf(source: string): ScriptCall['script'] {
  return { source, sha: createHash('sha1').update(source).digest('hex') };
}

/** @throws CommandFault */
function run(
  client: RedisClient,
  script: ScriptCall['script'],
  keys: string[],
  args: (string | number)[],
  more: Partial<ScriptCall> = {},
): Promise<unknown> {
  return new Promise((answered, failed: (fault: CommandFault) => void) => {
    client.run({ script, keys, args, isWanted: true, sentAgain: () => {}, answered, failed, ...more });
  });
}

function listening(client: RedisClient, channel: string) {
  const [told, heard]: [string[], string[]] = [[], []];
  const hear = (text: string) => heard.push(text);
  const subscription = client.messages.subscribe(channel, 'listener', hear, (change) =>
    told.push(typeof change === 'string' ? change : change.refusal),
  );
  onTestFinished(() => subscription.close());
  const subscribed = () => until(() => told.includes('opened'), { what: 'it is subscribed' });
  return { told, heard, subscription, subscribed };
}

function serverOf({ nodes }: RedisCluster, name: string): RedisServer {
  return nodes.find(({ port }) => `127.0.0.1:${port}` === name)!;
}

/** A channel in a slot of a master. */
function channelOn(cluster: RedisCluster, name: string): string {
  for (let number = 0; ; number++)
    if (masterOf(cluster, `news ${number}`) === serverOf(cluster, name)) return `news ${number}`;
}
