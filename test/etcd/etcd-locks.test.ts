import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import type { Grant } from 'nest-redis-lock/testing';
import { EtcdLocks } from '../../examples/etcd/src/etcd-locks.js';
import { claimOn, freshKey } from '../support/claims.js';
import { until } from '../support/until.js';
import { EtcdCluster } from './etcd-cluster.js';
import { EtcdProxy, type Command, type Fate } from './etcd-proxy.js';

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await EtcdCluster.start()));
afterAll(() => etcd?.stop());

async function proxied(timeoutMs?: number) {
  const proxy = await EtcdProxy.start(etcd.endpoints[0]);
  onTestFinished(() => proxy.stop());
  const beside = new EtcdLocks({ endpoints: [proxy.url, ...etcd.endpoints], timeoutMs: 20_000 });
  const alone = new EtcdLocks({ endpoints: [proxy.url], timeoutMs });
  /** The fate of the first command with this path. */
  const once = (path: string, fate: Fate) => {
    proxy.fate = (command) => {
      if (command.path !== path) return 'answered';
      proxy.fate = () => 'answered';
      return fate;
    };
  };
  const sent = (path: string) => proxy.commands.filter((command) => command.path === path);
  return { proxy, beside, alone, once, sent };
}

const [TXN, REVOKE] = ['/v3/kv/txn', '/v3/lease/revoke'];
const NO_LEASE = { message: expect.stringContaining('lease not found') };

it('a command that would take a lock again after its release fails, because the release revoked its lease [G1110]', async () => {
  const { beside, once, sent } = await proxied();
  const claim = claimOn(freshKey());
  once(TXN, 'kept');
  const granted = await beside.acquire(claim);
  expect(granted).toMatchObject({ status: 'acquired' });
  expect(await beside.release(claim, {})).toEqual({ status: 'released' });
  expect(await sent(TXN)[0]!.run()).toMatchObject(NO_LEASE);
  expect(await beside.inspect(claim.key)).toBeUndefined();
});

it('the same after a lease was extended: the lease that it was taken with is revoked [G1111]', async () => {
  const { beside, alone, once, sent } = await proxied();
  const claim = claimOn(freshKey());
  once(TXN, 'kept');
  await beside.acquire(claim);
  const revoked = sent(REVOKE).length;
  expect(await alone.extend({ grant: claim, ttlMs: 60_000 })).toEqual({ status: 'extended' });
  await until(() => sent(REVOKE).length > revoked, { what: 'the old lease is revoked' });
  expect(await alone.release(claim, {})).toEqual({ status: 'released' });
  expect(await sent(TXN)[0]!.run()).toMatchObject(NO_LEASE);
  expect(await beside.inspect(claim.key)).toBeUndefined();
});

it('a command of an attempt that has failed takes no lock when it comes late [G1112]', async () => {
  const { proxy, alone, sent } = await proxied(300);
  const claim = claimOn(freshKey());
  proxy.fate = ({ path }) => (path === TXN ? 'kept' : 'answered');
  await expect(alone.acquire(claim)).rejects.toThrow();
  await until(async () => (await sent(REVOKE)[0]?.run())?.message, { what: 'the lease of the attempt is revoked' });
  for (const command of sent(TXN)) expect(await command.run()).toMatchObject(NO_LEASE);
  expect(await alone.inspect(claim.key)).toBeUndefined();
});

it('a command of an attempt that was refused takes no lock when it comes late [G1119]', async () => {
  const { proxy, alone, sent } = await proxied();
  const [claim, next] = [claimOn(freshKey()), claimOn(freshKey())];
  next.key = claim.key;
  const other = new EtcdLocks({ endpoints: etcd.endpoints });
  proxy.fate = async ({ path }: Command): Promise<Fate> => {
    if (path !== TXN) return 'answered';
    proxy.fate = () => 'answered';
    await other.acquire(next);
    return 'kept';
  };
  expect(await alone.acquire(claim)).toMatchObject({ status: 'contended', owner: next.owner });
  await other.release(next, {});
  await until(async () => (await sent(REVOKE)[0]?.run())?.message, { what: 'the lease of the attempt is revoked' });
  expect(await sent(TXN)[0]!.run()).toMatchObject(NO_LEASE);
  expect(await alone.inspect(claim.key)).toBeUndefined();
});

it('an unanswered extension leaves its lock held, whether it ran or not [G1113]', async () => {
  for (const fate of ['lost', 'kept'] as const) {
    const { proxy, alone, sent } = await proxied(300);
    const claim = claimOn(freshKey());
    await alone.acquire(claim);
    proxy.fate = ({ path }) => (path === TXN ? fate : 'answered');
    await expect(alone.extend({ grant: claim, ttlMs: 60_000 })).rejects.toThrow();
    expect(sent(REVOKE)).toEqual([]);
    proxy.fate = () => 'answered';
    expect(await alone.extend({ grant: claim, ttlMs: 60_000 })).toEqual({ status: 'extended' });
    await until(() => sent(REVOKE).length > 0, { what: 'the lease before is revoked' });
    expect(await alone.inspect(claim.key)).toMatchObject({ holders: [{ owner: claim.owner }] });
    await alone.release(claim, {});
  }
});

it('a command whose answer is lost counts as done: the lock is acquired, extended, transferred, kept and released [G1114]', async () => {
  const { alone, once } = await proxied();
  const [claim, next] = [claimOn(freshKey()), claimOn(freshKey())];
  const { key } = claim;
  once(TXN, 'lost');
  expect(await alone.acquire(claim)).toMatchObject({ status: 'acquired' });
  once(TXN, 'lost');
  expect(await alone.extend({ grant: claim, ttlMs: 60_000 })).toEqual({ status: 'extended' });
  once(TXN, 'lost');
  const transfer = { key, from: claim.owner, to: next.owner, ttlMs: 60_000, mints: true };
  const transferred = await alone.transfer(transfer);
  expect(transferred).toMatchObject({ status: 'transferred', grant: { owner: next.owner } });
  expect(await alone.inspect(key)).toMatchObject({ holders: [{ owner: next.owner, remainingMs: 60_000 }] });
  once(TXN, 'lost');
  const keepUntil = performance.now() + 60_000;
  expect(await alone.release({ key, owner: next.owner }, { keepUntil })).toEqual({ status: 'released' });
  once(REVOKE, 'lost');
  expect(await alone.release({ key, owner: next.owner }, {})).toEqual({ status: 'released' });
  expect(await alone.inspect(key)).toBeUndefined();
});

it('a release that meets an extension of its own lock frees the lock with its new lease [G1115]', async () => {
  const { proxy, alone } = await proxied();
  const other = await proxied(300);
  other.proxy.fate = ({ path }) => (path === REVOKE ? 'hung' : 'answered');
  const claim = claimOn(freshKey());
  await alone.acquire(claim);
  proxy.fate = async ({ path }: Command): Promise<Fate> => {
    if (path !== REVOKE) return 'answered';
    proxy.fate = () => 'answered';
    await other.alone.extend({ grant: claim, ttlMs: 60_000 });
    return 'answered';
  };
  expect(await alone.release(claim, {})).toEqual({ status: 'released' });
  expect(await alone.inspect(claim.key)).toBeUndefined();
});

it('a release that meets a forced one finds nothing to release', async () => {
  const { proxy, alone } = await proxied();
  const claim = claimOn(freshKey());
  await alone.acquire(claim);
  proxy.fate = async ({ path, run }: Command): Promise<Fate> => {
    if (path === REVOKE) await run();
    return 'answered';
  };
  expect(await alone.release(claim, {})).toEqual({ status: 'gone' });
});

it('a forced release takes a lock from one holder, and not from the next [G1116]', async () => {
  const { proxy, alone } = await proxied();
  const [claim, next] = [claimOn(freshKey()), claimOn(freshKey())];
  next.key = claim.key;
  await alone.acquire(claim);
  const other = new EtcdLocks({ endpoints: etcd.endpoints });
  proxy.fate = async ({ path, run }: Command): Promise<Fate> => {
    if (path !== REVOKE) return 'answered';
    proxy.fate = () => 'answered';
    await run();
    await other.acquire(next);
    return 'lost';
  };
  expect(await alone.forceRelease(claim.key)).toEqual({ from: [claim.owner] });
  expect(await alone.inspect(claim.key)).toMatchObject({ holders: [{ owner: next.owner }] });
});

it('commands and a watch that is begun again go on with the next member when one does not answer [G1117]', async () => {
  const { proxy, beside } = await proxied();
  const heard: (string | undefined)[] = [];
  const watch = (signal: AbortSignal) => {
    const hear = async () => {
      for await (const key of beside.watch(signal)) heard.push(key);
    };
    return hear().catch(() => {});
  };
  const hears = (what: string | undefined) =>
    until(() => heard.at(-1) === what && heard.length > 0, { what: 'it is heard' });
  const [claim, next] = [claimOn(freshKey()), claimOn(freshKey())];
  const [first, second] = [new AbortController(), new AbortController()];
  const watching = [watch(first.signal)];
  await hears(undefined);
  await beside.acquire(claim);
  await beside.release(claim, {});
  await hears(claim.key);
  proxy.fate = () => 'hung';
  expect(await beside.acquire(next)).toMatchObject({ status: 'acquired' });
  first.abort();
  watching.push(watch(second.signal));
  await hears(undefined);
  await beside.release(next, {});
  await hears(next.key);
  second.abort();
  await Promise.all(watching);
});

it('tokens rise from the turns of a grant to a transfer, and to the next grant', async () => {
  const { alone } = await proxied();
  const [claim, one, two, next] = Array.from({ length: 4 }, () => claimOn(freshKey()));
  const { key } = claim!;
  const granted = await alone.acquire({ ...claim!, turns: 1_001 });
  expect(granted).toMatchObject({ status: 'acquired' });
  const { fencingToken, lastToken } = (granted as { grant: Grant }).grant;
  const tokens = [fencingToken, lastToken];
  for (const [from, to] of [
    [claim!, one!],
    [one!, two!],
  ] as const) {
    const transferred = await alone.transfer({ key, from: from.owner, to: to.owner, ttlMs: 20_000, mints: true });
    tokens.push((transferred as { grant: Grant }).grant.fencingToken);
  }
  await alone.release({ key, owner: two!.owner }, {});
  tokens.push(((await alone.acquire({ ...next!, key })) as { grant: Grant }).grant.fencingToken);
  expect(lastToken).toBe(fencingToken! + 1_000);
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a! - b!));
});
