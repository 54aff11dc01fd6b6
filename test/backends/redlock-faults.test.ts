import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { COMMANDS_IN_FLIGHT } from '../../lib/core/backend/lane.js';
import { KEEP, RELEASE } from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { until } from '../support/until.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { acquireOn, claimOn, connected, extendOn, freshKey, granted, now, releaseOn } from '../support/claims.js';
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

  /** Gives a lock back while a slow node does not know the script of the attempt or extension before, but this one. */
  const givenBackBeforeItIsSentAgain = async (late: string, known: Script, keepMs?: number) => {
    await waitsForSlowNodes();
    let claim = claimOn(freshKey(), 60_000);
    if (late === 'extend') claim = await held(60_000);
    const slow = nodes.servers[2]!;
    await slow.command('SCRIPT', 'FLUSH');
    await slow.command('SCRIPT', 'LOAD', known.source);
    nodes.pause(2);
    const { status } = await (late === 'acquire' ? acquireOn(backend, claim) : extendOn(backend, claim));
    expect(status).toBe(`${late}${late === 'acquire' ? 'd' : 'ed'}`);
    expect(await releaseOn(backend, claim, keepMs)).toEqual({ status: 'released' });
    nodes.resume();
    await backend.close(); // nothing is under way any more
    expect((await slow.calls()).eval).toBeGreaterThan(0);
    return claim;
  };

  it.each(['acquire', 'extend'])(
    'a lock is kept also on a slow node that did not know the script of the %s, and for no longer [G334]',
    async (late) => {
      const claim = await givenBackBeforeItIsSentAgain(late, KEEP, 30_000);
      for (const server of nodes.servers) {
        expect(await server.command('GET', `lock:{${claim.key}}`)).toMatch(new RegExp(`^${claim.owner}@\\d{16}=$`));
        expect(await server.command('PTTL', `lock:{${claim.key}}`)).toBeLessThanOrEqual(30_000);
      }
    },
  );

  it.each(['acquire', 'extend'])(
    'leaves nothing on a slow node that did not know the script of the %s',
    async (late) => {
      const claim = await givenBackBeforeItIsSentAgain(late, RELEASE);
      expect(await nodes.owners(claim.key)).toEqual([null, null, null]);
    },
  );

  it('counts a lease from when the first of the votes that granted it was sent', async () => {
    await waitsForSlowNodes();
    nodes.pause(2);
    proxies[1]!.hold();
    for (let others = 0; others < 2 * COMMANDS_IN_FLIGHT; others++) {
      void acquireOn(backend, claimOn(freshKey(), 60_000)); // so many that the vote of the second node has to wait
      await new Promise(setImmediate);
    }
    const [claim, since] = [claimOn(freshKey(), 60_000), now()];
    const attempt = acquireOn(backend, claim);
    await until(() => nodes.owner(0, claim.key), { what: 'the first node has voted' });
    await until(() => now() > since + 600, { what: 'time has passed' });
    proxies[1]!.release();
    const outcome = (await attempt) as { status: string; sentAt: number };
    expect(outcome.status).toBe('acquired');
    expect(outcome.sentAt).toBeLessThan(since + 500);
  });
});
