import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { RedisLockSettings } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { ownerOn } from '../support/stored.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

/** A primary whose replica follows it through a proxy, which can hold back the stream of changes. */
class Primary {
  private constructor(
    readonly server: RedisServer,
    readonly replica: RedisServer,
    private readonly stream: TcpProxy,
  ) {}

  static async start(): Promise<Primary> {
    const server = await RedisServer.start();
    const stream = await TcpProxy.start(server.port);
    const replica = await RedisServer.start({ args: ['--replicaof', `127.0.0.1 ${stream.port}`] });
    const primary = new Primary(server, replica, stream);
    await primary.acknowledged();
    return primary;
  }

  get url(): string {
    return this.server.url;
  }

  /** The replica gets nothing that is written from now on, until `letIn`. */
  cutOff(): void {
    this.stream.dropReplies();
  }

  /** The replica gets what it missed. @returns when it follows */
  async letIn(): Promise<void> {
    this.stream.passReplies();
    await this.acknowledged();
  }

  /** @returns the id of the client of this server that WAIT blocks, once there is one */
  isWaitedFor(): Promise<string> {
    const waiting = async () =>
      /^id=(\d+) .* flags=b .* cmd=wait /m.exec(String(await this.server.command('CLIENT', 'LIST')))?.[1];
    return until(waiting, { what: 'a client waits for replicas' });
  }

  async isFree(key: string): Promise<void> {
    await until(async () => (await ownerOn(this.server, key)) === null, { what: `the lock "${key}" is free` });
  }

  async stop(): Promise<void> {
    await Promise.all([this.server.stop(), this.stream.stop(), this.replica.stop()]);
  }

  private async acknowledged(): Promise<void> {
    const acknowledged = async () => {
      await this.server.command('SET', 'follows', 1);
      return (await this.server.command('WAIT', 1, 200)) === 1;
    };
    await until(acknowledged, { what: 'the replica acknowledges changes' });
  }
}

/** For waits without success. */
const BRIEFLY = { count: 1, timeoutMs: 100 };

describe('With waitForReplicas', () => {
  let primary: Primary;

  beforeAll(async () => {
    primary = await Primary.start();
  });
  afterEach(async () => {
    primary.server.resume();
    await primary.letIn();
  });
  afterAll(() => primary.stop());

  const open = (waitForReplicas: RedisLockSettings['waitForReplicas'], settings: RedisLockSettings = {}) =>
    openLocks({ redis: primary.url, commandTimeoutMs: 10_000, waitForReplicas, ...settings });
  const fewer = (of: number, timeoutMs: number) => ({
    code: 'LOCK_UNAVAILABLE',
    causes: [
      expect.objectContaining({ problem: expect.stringContaining(`of ${of} replicas had it within ${timeoutMs} ms`) }),
    ],
  });

  it('a lock that the replica does not get in time is refused and given back, and the error says how many replicas had got it [G74]', async () => {
    const locks = await open(BRIEFLY);
    primary.cutOff();
    const key = freshKey();
    await expect(locks.acquire(key)).rejects.toMatchObject(fewer(1, 100));
    await primary.isFree(key);
  });

  it('a lock that the replica does not get in time leaves its parcel its time, if it is adopted', async () => {
    const sender = await openLocks({ redis: primary.url });
    const locks = await open(BRIEFLY);
    const key = freshKey();
    const parcel = await (await sender.acquire(key)).detach({ ttlMs: 3_600_000 });
    primary.cutOff();
    await expect(locks.adopt(parcel)).rejects.toMatchObject(fewer(1, 100));
    const holder = async () => (await sender.inspect(key))!;
    await until(async () => (await holder()).holder?.detached, { what: 'the parcel has the lock again' });
    expect((await holder()).remainingMs).toBeGreaterThan(3_000_000);
    await primary.letIn();
    expect(await sender.release(parcel)).toBe(true);
  });

  it('a lock that was handed over and does not reach the replica in time is refused to the waiter, and passed on to nobody [G75]', async () => {
    const [holder, waiter] = [await open(undefined), await open(BRIEFLY)];
    const key = freshKey();
    const held = await holder.acquire(key);
    const attempt = waiter.acquire(key);
    await untilQueued(primary.server, key, 1);
    primary.cutOff();
    await held.release();
    await expect(attempt).rejects.toMatchObject(fewer(1, 100));
    await primary.isFree(key);
  });

  it('a lock whose primary hangs while it waits for replicas is refused [G76]', async () => {
    const locks = await open({ count: 1, timeoutMs: 500 }, { commandTimeoutMs: 1_000 });
    const key = freshKey();
    await locks.isLocked(key); // connected
    primary.cutOff();
    const attempt = expect(locks.acquire(key)).rejects.toThrow('no answer within 1500 ms on whether replicas have it');
    await primary.isWaitedFor();
    primary.server.pause();
    await attempt;
    primary.server.resume();
    await primary.isFree(key);
    await primary.letIn();
    await until(async () => (await locks.tryAcquire(key).catch(() => null)) !== null, { what: 'it serves again' });
  });

  it('a client that cannot be closed while its server hangs costs the locks of that round, but no later ones', async () => {
    const client = new Redis(primary.url);
    onTestFinished(() => client.disconnect());
    const { duplicate } = client;
    const disconnects: (() => void)[] = [];
    client.duplicate = (options) => {
      const copy = duplicate.call(client, options);
      const disconnect = copy.disconnect.bind(copy);
      copy.disconnect = () => {
        disconnects.push(disconnect);
        if (disconnects.length === 1) throw new Error('of the client');
        disconnect();
      };
      return copy;
    };
    onTestFinished(() => disconnects[0]?.());
    const waitForReplicas = { count: 1, timeoutMs: 500 };
    const locks = await openLocks({ redis: client, commandTimeoutMs: 1_000, waitForReplicas });
    primary.cutOff();
    const attempt = expect(locks.acquire(freshKey())).rejects.toThrow('of the client');
    await primary.isWaitedFor();
    primary.server.pause();
    await attempt;
    primary.server.resume();
    await primary.letIn();
    await until(() => locks.tryAcquire(freshKey()).catch(() => null), { what: 'it serves again' });
  });

  it('an extension with waitForReplicas that the replica does not get does not count [G77]', async () => {
    const locks = await open({ count: 1, timeoutMs: 1_000 }, { ttlMs: 60_000 });
    const lock = await until(() => locks.tryAcquire(freshKey()).catch(() => null), {
      what: 'it is acknowledged in time',
    });
    primary.cutOff();
    await expect(lock.extend()).rejects.toThrow('0 of 1 replicas had it within 1000 ms');
    await primary.letIn();
    const extended = () =>
      lock.extend().then(
        () => true,
        () => false,
      );
    await until(extended, { what: 'an extension is acknowledged in time' });
    expect(lock.isHeld).toBe(true);
  });

  it.each<[unknown, string]>([
    [1, 'waitForReplicas must be an object: got 1'],
    [{ timeoutMs: 100 }, 'waitForReplicas.count must be a whole number from 1 to 100: got undefined'],
    [{ count: 0, timeoutMs: 100 }, 'waitForReplicas.count must be a whole number from 1 to 100: got 0'],
    [{ count: 1, timeoutMs: 0 }, 'from 1 to 60000: got 0'], // WAIT takes it for without end
    [{ count: '1', timeoutMs: 100 }, 'got "1"'],
    [{ count: 1, timeoutMs: 100, ms: 1 }, 'There is no option "ms": expected count, timeoutMs'],
    [{ count: 1, timeoutMs: 10_001 }, 'at most a third of ttlMs: got 10001'],
  ])('the option %j is refused', async (waitForReplicas, message) => {
    const refusal = { code: 'LOCK_OPTIONS', message: expect.stringContaining(message) };
    await expect(open(waitForReplicas as RedisLockSettings['waitForReplicas'])).rejects.toMatchObject(refusal);
  });

  it('the option is refused where there are no replicas, and so is a ttl whose extensions could not end in time', async () => {
    const waitForReplicas = { count: 1, timeoutMs: 6_000 };
    for (const store of [{ redlock: [primary.url, primary.url, primary.url] }, { memory: true as const }]) {
      const refusal = { code: 'LOCK_OPTIONS', message: expect.stringContaining(`got ${Object.keys(store)[0]}`) };
      await expect(openLocks({ ...store, waitForReplicas })).rejects.toMatchObject(refusal);
    }
    const locks = await open(waitForReplicas, { ttlMs: 60_000 });
    const message = /^ttlMs must be at least 18000: got \d+\. That is three times waitForReplicas\.timeoutMs: /;
    const refusal = { code: 'LOCK_OPTIONS', message: expect.stringMatching(message) };
    await expect(locks.acquire('key', { ttlMs: 17_999 })).rejects.toMatchObject(refusal);
    await expect(locks.acquireAll(['key'], { ttlMs: 17_999 })).rejects.toMatchObject(refusal);
    expect(() => locks.leader('key')).toThrow(expect.objectContaining(refusal)); // its default is 15 s
    const lock = await locks.acquire('another', { ttlMs: 18_000 });
    await expect(lock.extend(17_999)).rejects.toMatchObject(refusal);
  });
});
