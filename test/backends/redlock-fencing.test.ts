import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { RAISE_FENCE } from '../../lib/stores/redis/scripts/lua.js';
import { shardOf, timeOn } from '../support/stored.js';
import { proxyTo } from '../support/stage.js';
import type { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { acquireOn, backendOf, claimOn, freshKey, granted, releaseOn } from '../support/claims.js';
import { redlockNodes, type RedlockNodes } from '../support/redlock-nodes.js';

const HIGH = 3e15;

describe('Fencing tokens of a Redlock', () => {
  let nodes: RedlockNodes;
  let proxy: TcpProxy;
  let backend: LockBackend;

  /** A backend on the nodes, of which the first is behind a proxy. */
  const open = (commandTimeoutMs: number) =>
    backendOf({ redlock: [proxy.url, ...nodes.urls.slice(1)], commandTimeoutMs });

  beforeEach(async () => {
    nodes = await redlockNodes(3);
    proxy = await proxyTo(nodes.servers[0]!);
    // A limit that is never reached: a node that hangs is just not part of the majority.
    backend = await open(60_000);
    onTestFinished(() => nodes.resume());
    const warmUp = claimOn(freshKey());
    await nodes.setFence(0, warmUp.key, HIGH); // so that each node knows the script of the write-back
    await nodes.setFence(1, warmUp.key, HIGH + 1);
    await nodes.setFence(2, warmUp.key, HIGH + 2);
    await granted(backend, warmUp);
    await releaseOn(backend, warmUp);
  });

  it('a fencing token of a Redlock is the highest counter of the granting nodes, and a majority knows it before it is issued [G17]', async () => {
    const claim = claimOn(freshKey());
    await nodes.setFence(0, claim.key, HIGH);
    await nodes.setFence(1, claim.key, HIGH + 50);
    await nodes.setFence(2, claim.key, HIGH + 10);
    nodes.pause(2);
    const { fencingToken } = await granted(backend, claim);
    expect(fencingToken).toBe(HIGH + 51);
    expect(await nodes.fence(0, claim.key)).toBe(HIGH + 51);
    expect(await nodes.fence(1, claim.key)).toBe(HIGH + 51);
    expect(await nodes.servers[0]!.command('PTTL', shardOf(claim.key))).toBe(-1);
    await releaseOn(backend, claim);
  });

  it('the next holder of a Redlock gets a larger fencing token, even if another majority answers [G18]', async () => {
    const first = claimOn(freshKey());
    await nodes.setFence(0, first.key, HIGH);
    await nodes.setFence(1, first.key, HIGH + 50);
    await nodes.setFence(2, first.key, HIGH + 10);
    nodes.pause(2);
    const one = await granted(backend, first);
    expect(await releaseOn(backend, first)).toEqual({ status: 'released' });
    nodes.resume();
    nodes.pause(1); // the node whose counter was the highest
    const second = claimOn(first.key);
    const two = await granted(backend, second);
    expect(two.fencingToken).toBeGreaterThan(one.fencingToken);
    await releaseOn(backend, second);
  });

  it('a fencing token that cannot reach a majority is not issued, and the lock is given back [G19]', async () => {
    backend = await open(900);
    const claim = claimOn(freshKey());
    await nodes.setFence(0, claim.key, HIGH);
    await nodes.setFence(1, claim.key, HIGH + 50);
    nodes.pause(2);
    const cut = proxy.cutAfterRequest(RAISE_FENCE.sha);
    const outcome = await acquireOn(backend, claim);
    await cut;
    expect(outcome).toEqual({
      status: 'unavailable',
      causes: [`127.0.0.1:${proxy.port}`, ...nodes.names(2)].map((node) => expect.objectContaining({ node })),
    });
    nodes.resume();
    await until(() => nodes.fence(2, claim.key), { what: 'the late node has granted' });
    await nodes.allFree(claim.key);
  });

  it('no fencing token is issued because of a node that granted late and had reached a larger number by then [G20]', async () => {
    backend = await open(5_000);
    const claim = claimOn(freshKey());
    await nodes.setFence(0, claim.key, HIGH);
    await nodes.setFence(1, claim.key, HIGH + 50);
    await nodes.setFence(2, claim.key, HIGH + 500); // which another holder may have been given
    nodes.pause(2);
    const cut = proxy.cutAfterRequest(RAISE_FENCE.sha);
    const acquiring = acquireOn(backend, claim);
    await cut;
    nodes.resume(); // it grants, and gets the token of the others, which is below its own
    expect(await acquiring).toEqual({
      status: 'unavailable',
      causes: [expect.objectContaining({ node: `127.0.0.1:${proxy.port}` })],
    });
    expect(await nodes.fence(2, claim.key)).toBe(HIGH + 501);
    await nodes.allFree(claim.key);
  });

  it('are not proposed further and further ahead when one node has a counter that is far ahead', async () => {
    for (let round = 0; round < 5; round++) {
      const claim = claimOn(freshKey());
      await nodes.setFence(2, claim.key, HIGH);
      await granted(backend, claim);
      await releaseOn(backend, claim);
      await nodes.allFree(claim.key);
    }
    const claim = claimOn(freshKey());
    const { fencingToken } = await granted(backend, claim);
    expect(fencingToken).toBeLessThan((await timeOn(nodes.servers[0]!)) * 1_000 + 2_000_000);
    await releaseOn(backend, claim);
  });
});
