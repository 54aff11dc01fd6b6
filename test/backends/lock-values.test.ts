import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LockContendedError } from '../../lib/index.js';
import type { LockBackend } from 'nest-redis-lock/testing';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { claimOn, connected, freshKey, granted, releaseOn } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { until } from '../support/until.js';

/** Longer than a busy machine lets a process stand still. */
const KEPT_MS = 1_500;

describe.each([
  ['one server', 1],
  ['a Redlock', 3],
])('the values of locks on %s', (_, count) => {
  let nodes: RedlockNodes;
  let options: RedisLockModuleOptions;
  let backend: LockBackend;
  beforeAll(async () => {
    nodes = await RedlockNodes.start(count);
    options = count === 1 ? { redis: nodes.urls[0]! } : { redlock: nodes.urls, commandTimeoutMs: 10_000 };
    backend = await connected(options);
  });
  afterAll(async () => {
    await backend.close();
    await nodes.stop();
  });

  const valueOn = (node: number, key: string) => nodes.servers[node]!.command('GET', `lock:{${key}}`);

  it('a kept lock is shown with the time until it is free, also to refused calls; a waiter gets it at that time [G332]', async () => {
    const [locks, kept] = [await openLocks(options), claimOn(freshKey())];
    const { key } = kept;
    const { fencingToken } = await granted(backend, kept);
    const keptAt = Date.now();
    expect(await releaseOn(backend, kept, KEPT_MS)).toEqual({ status: 'released' });
    const values = () => Promise.all(nodes.servers.map((server) => server.command('GET', `lock:{${key}}`)));
    const areKept = async () => (await values()).every((value) => String(value).endsWith('='));
    await until(areKept, { what: 'all nodes keep it' }); // a majority has confirmed it
    const waiting = locks.acquire(key);
    const info = (await locks.inspect(key))!;
    expect(info).toMatchObject({ holder: { owner: kept.owner }, fencingToken });
    const error = (await locks.acquire(key, { waitMs: 0 }).catch((reason: unknown) => reason)) as LockContendedError;
    expect(error).toBeInstanceOf(LockContendedError);
    expect(error.message).toMatch(/ is kept until .+ by the holdMs of pid 1 on host; .+ or lower holdMs\. /);
    const lock = await waiting;
    expect(Date.now() - keptAt).toBeGreaterThanOrEqual(KEPT_MS - 1);
    for (const { keptUntil, remainingMs } of [info, error]) {
      expect(remainingMs).toBeLessThanOrEqual(KEPT_MS);
      expect(keptUntil!.getTime() - keptAt).toBeGreaterThanOrEqual(KEPT_MS - 10);
      expect(keptUntil!.getTime()).toBeLessThanOrEqual(Date.now() + 100);
    }
    expect(lock.fencingToken).toBeGreaterThan(fencingToken);
    expect((await locks.inspect(key))!.keptUntil).toBeUndefined();
    const held = (await locks
      .acquire(key, { waitMs: 0, reentrant: false })
      .catch((reason: unknown) => reason)) as Error;
    expect(held.message).toContain(' is held by ');
    await lock.release();
  });

  it('a holder is shown without the token that its value has in Redis, also when others wait for the lock [G249]', async () => {
    const [locks, others] = [await openLocks(options), await openLocks(options)];
    const key = freshKey();
    const lock = await locks.acquire(key);
    const token = String(lock.fencingToken);
    const values = async () =>
      (await Promise.all(nodes.servers.map((_server, node) => valueOn(node, key)))).map(String);
    expect((await values()).filter((value) => value.endsWith(`@${token}`)).length).toBeGreaterThan(count / 2);

    for (const waitMs of [0, 300]) {
      const error = (await others.acquire(key, { waitMs }).catch((reason: unknown) => reason)) as LockContendedError;
      expect(error.holder).toMatchObject({ owner: lock.owner, pid: process.pid });
      const all = `${inspect(error, { depth: Infinity, showHidden: true })} ${JSON.stringify(error)}`;
      expect(all).toContain(lock.owner);
      expect(all).not.toContain('@1');
      expect(all).not.toContain(token);
    }
    const waiting = new AbortController();
    const given = others.acquire(key, { signal: waiting.signal }).catch((reason: unknown) => reason);
    const isSaid = async () => (await values()).filter((value) => value.endsWith(`@${token}+`)).length > count / 2;
    await until(isSaid, { what: 'a majority of the values says that others may wait' });
    waiting.abort('enough');
    expect(await given).toBe('enough');
    expect(await others.inspect(key)).toMatchObject({ holder: { owner: lock.owner }, fencingToken: lock.fencingToken });
    expect(await backend.forceRelease(key)).toEqual({ from: [lock.owner] });
  });

  it.each(['me@home+', 'short@123456789012345', 'twice@1795336344243000++', '@1795336344243000', 'a person'])(
    'a value that another program wrote is shown as it is, also to refused calls: %j',
    async (value) => {
      const [locks, key] = [await openLocks(options), freshKey()];
      await Promise.all(nodes.servers.map((_server, node) => nodes.put(node, key, value)));
      expect((await locks.inspect(key))?.holder).toEqual({ owner: value });
      const error = (await locks.acquire(key, { waitMs: 0 }).catch((reason: unknown) => reason)) as LockContendedError;
      expect(error.holder).toEqual({ owner: value });
      expect(error.message).toContain(value);
      expect(await backend.forceRelease(key)).toEqual({ from: [value] });
    },
  );
});
