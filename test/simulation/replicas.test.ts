import { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { replicaOf } from '../support/replica-of.js';
import { SentinelGroup } from '../support/redis-sentinel.js';
import type { RedisServer } from '../support/redis-server.js';
import { clientOf, proxyTo, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

/**
 * The facts that the tests of failovers rely on. These tests run on simulated servers, and with `npm run test:real` on
 * real ones.
 */
describe('A replica', () => {
  it('treats a key as gone that has expired while its primary hung, and not before', async () => {
    const primary = await redisServer();
    const replica = await replicaOf(primary);
    await primary.command('SET', 'key', 1, 'PX', 1_500);
    await replicated(primary);
    primary.pause();
    onTestFinished(() => primary.resume());
    expect(await replica.command('GET', 'key')).toBe('1');
    await until(async () => (await replica.command('GET', 'key')) === null, { what: 'it is gone' });
    expect(await replica.command('PTTL', 'key')).toBe(-2);
    expect(await replica.keys()).toEqual([]);
  });

  it('goes on where it was when the stream of changes breaks', async () => {
    const primary = await redisServer();
    const stream = await proxyTo(primary);
    const replica = await replicaOf(primary, stream);
    await primary.command('SET', 'first', 1);
    await replicated(primary);
    stream.dropReplies();
    await primary.command('SET', 'second', 2);
    expect(await primary.command('WAIT', 1, 100)).toBe(0);
    expect(await replica.command('MGET', 'first', 'second')).toEqual(['1', null]);
    stream.passReplies();
    await until(async () => (await replica.command('GET', 'second')) === '2', { what: 'it has caught up' });
    await replicated(primary);
    expect((await replication(replica)).master_replid).toBe((await replication(primary)).master_replid);
  });

  it('that is promoted has its own history from there on, which other replicas follow', async () => {
    const primary = await redisServer();
    const [promoted, other] = [await replicaOf(primary), await replicaOf(primary)];
    await primary.command('SET', 'key', 1);
    await replicated(primary, 2);
    const { master_replid: former } = await replication(primary);
    await primary.kill();
    await promoted.command('REPLICAOF', 'NO', 'ONE');
    expect(await promoted.command('ROLE')).toEqual(['master', expect.any(Number), []]);
    const state = await replication(promoted);
    expect(state).toMatchObject({ role: 'master', master_replid2: former });
    expect(state.master_replid).not.toBe(former);
    await promoted.command('SET', 'key', 2);
    await other.command('REPLICAOF', '127.0.0.1', promoted.port);
    await until(async () => (await other.command('GET', 'key')) === '2', { what: 'the other one follows it' });
    expect(await replication(other)).toMatchObject({ master_replid: state.master_replid, master_replid2: former });
  });

  it('that was a primary loses what only it had', async () => {
    const [old, next] = [await redisServer(), await redisServer()];
    await old.command('SET', 'key', 'of the old one');
    await old.command('SET', 'only', 1);
    await next.command('SET', 'key', 'of the new one');
    await old.command('REPLICAOF', '127.0.0.1', next.port);
    await until(async () => (await old.command('GET', 'key')) === 'of the new one', { what: 'it follows' });
    expect(await old.keys()).toEqual(['key']);
    expect(await old.command('ROLE')).toEqual(['slave', '127.0.0.1', next.port, 'connected', expect.any(Number)]);
    await expect(old.command('SET', 'key', 1)).rejects.toThrow(/^READONLY /);
  });

  it('follows again when its primary returns, and has its data then', async () => {
    const primary = await redisServer();
    const replica = await replicaOf(primary);
    await primary.command('SET', 'key', 1);
    await replicated(primary);
    await primary.kill();
    await until(async () => (await replication(replica)).master_link_status === 'down', { what: 'its link is down' });
    expect(await replica.command('GET', 'key')).toBe('1');
    await primary.restart();
    await until(async () => (await replica.command('GET', 'key')) === null, { what: 'it has the data of its primary' });
  });
});

describe('WAIT', () => {
  it('counts the replicas that have what its connection has seen, and gives up after its time', async () => {
    const primary = await redisServer();
    const stream = await proxyTo(primary);
    await replicaOf(primary, stream);
    await replicated(primary);
    const client = clientOf(primary);
    stream.dropReplies();
    await client.set('key', 1);
    expect(await client.wait(1, 50)).toBe(0);
    const waiting = client.wait(1, 0);
    const later = client.get('key'); // its turn comes after that
    stream.passReplies();
    expect(await waiting).toBe(1);
    expect(await later).toBe('1');
  });

  it('is ended by CLIENT UNBLOCK, and when the server becomes a replica', async () => {
    const [primary, other] = [await redisServer(), await redisServer()];
    const client = new Redis(primary.port, '127.0.0.1', { retryStrategy: () => null });
    client.on('error', () => {});
    onTestFinished(() => client.disconnect());
    const id = await client.client('ID');
    const isBlocked = () =>
      until(async () => / flags=b .* cmd=wait /.test(String(await primary.command('CLIENT', 'LIST'))), {
        what: 'it waits',
      });
    const first = client.wait(1, 0);
    await isBlocked();
    expect(await primary.command('CLIENT', 'UNBLOCK', id)).toBe(1);
    expect(await first).toBe(0);
    const second = expect(client.wait(1, 0)).rejects.toThrow(/^UNBLOCKED force unblock/);
    await isBlocked();
    await primary.command('REPLICAOF', '127.0.0.1', other.port);
    await second;
    await until(() => client.status === 'end', { what: 'its connection is closed' });
  });
});

describe('Sentinels', () => {
  it('name the replicas and each other, report a failover, and make the former primary follow when it returns', async () => {
    const group = await SentinelGroup.start();
    onTestFinished(() => group.stop());
    const [first, ...others] = group.options.sentinels!;
    const sentinel = new Redis(first!.port!, first!.host!, { enableReadyCheck: false });
    const listener = sentinel.duplicate();
    onTestFinished(() => {
      for (const client of [sentinel, listener]) client.disconnect();
    });
    const portsOf = async (kind: string) => {
      const found = (await sentinel.call('SENTINEL', kind, group.options.name!)) as string[][];
      return found.map((fields) => Number(fields[fields.indexOf('port') + 1])).sort();
    };
    const replicas = group.replicas.map(({ server }) => server.port);
    expect(await portsOf('REPLICAS')).toEqual([...replicas].sort());
    expect(await portsOf('SLAVES')).toEqual([...replicas].sort());
    expect(await portsOf('SENTINELS')).toEqual(others.map((other) => other.port!).sort());
    await expect(sentinel.call('SENTINEL', 'MASTER', 'another')).rejects.toThrow('No such master with that name');
    expect(await sentinel.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'another')).toBeNull();

    const messages: string[] = [];
    listener.on('message', (_channel, message: string) => messages.push(message));
    await listener.subscribe('+switch-master');
    await group.primary.kill();
    const promoted = await group.failedOver();
    expect(promoted.port).toBe(replicas[0]);
    await until(() => messages.length > 0, { what: 'it is notified' });
    const { name } = group.options;
    expect(messages).toEqual([`${name} 127.0.0.1 ${group.primary.port} 127.0.0.1 ${promoted.port}`]);

    await promoted.command('SET', 'key', 1);
    await group.primary.restart();
    await until(async () => (await group.primary.command('GET', 'key')) === '1', {
      what: 'the former primary has the data of the new one',
      timeoutMs: 30_000,
    });
  });
});

/** The fields of INFO. */
async function replication(server: RedisServer): Promise<Record<string, string>> {
  const text = String(await server.command('INFO', 'replication'));
  return Object.fromEntries([...text.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name!, value!]));
}

/** All replicas have what the primary has. */
async function replicated(primary: RedisServer, replicas = 1): Promise<void> {
  await until(async () => (await primary.command('WAIT', replicas, 200)) === replicas, {
    what: 'the replicas have all changes',
  });
}
