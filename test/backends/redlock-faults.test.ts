import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { KEEP } from '../../lib/stores/redis/scripts/lua.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { acquireOn, claimOn, connected, extendOn, freshKey, granted, releaseOn } from '../support/claims.js';
import { RedlockNodes } from '../support/redlock-nodes.js';

describe('A Redlock of 3', () => {
  let nodes: RedlockNodes;
  let proxies: TcpProxy[];
  let backend: LockBackend;

  beforeAll(async () => {
    nodes = await RedlockNodes.start(3, ['--appendonly', 'yes', '--appendfsync', 'no']);
    proxies = await Promise.all(nodes.servers.map(({ port }) => TcpProxy.start(port)));
  });
  beforeEach(async () => {
    backend = await open(900);
  });
  afterEach(async () => {
    for (const proxy of proxies) {
      proxy.release();
      proxy.passReplies();
      await proxy.accept();
    }
    nodes.resume();
    await backend.close();
    await nodes.restart();
  });
  afterAll(async () => {
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    await nodes.stop();
  });

  const open = (commandTimeoutMs: number) =>
    connected({ redlock: proxies.map(({ url }) => url), commandTimeoutMs, admission: false });
  const waitsForSlowNodes = async () => {
    await backend.close();
    backend = await open(60_000);
  };
  const held = async (ttlMs?: number) => {
    const claim = claimOn(freshKey(), ttlMs);
    await granted(backend, claim);
    await nodes.allGranted(claim.key);
    return claim;
  };

  it.each([
    ['acquire', 'acquired'],
    ['extend', 'extended'],
  ] as const)(
    'a lock is kept also on a slow node that did not know the script of the %s, and for no longer [G334]',
    async (late, status) => {
      await waitsForSlowNodes();
      let claim = claimOn(freshKey(), 60_000);
      if (late === 'extend') claim = await held(60_000);
      const slow = nodes.servers[2]!;
      await slow.command('SCRIPT', 'FLUSH');
      await slow.command('SCRIPT', 'LOAD', KEEP.source);
      nodes.pause(2);
      expect(await (late === 'acquire' ? acquireOn(backend, claim) : extendOn(backend, claim))).toMatchObject({
        status,
      });
      expect(await releaseOn(backend, claim, 30_000)).toEqual({ status: 'released' });
      nodes.resume();
      await backend.close(); // nothing is under way any more
      expect((await slow.calls()).eval).toBeGreaterThan(0);
      for (const server of nodes.servers) {
        expect(await server.command('GET', `lock:{${claim.key}}`)).toMatch(new RegExp(`^${claim.owner}@\\d{16}=$`));
        expect(await server.command('PTTL', `lock:{${claim.key}}`)).toBeLessThanOrEqual(30_000);
      }
    },
  );
});
