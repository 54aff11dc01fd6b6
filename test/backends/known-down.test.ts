import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { attempt, backendOf, claimOn, extendOn, freshKey, untilGranted, warmUp } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { proxyTo, redisServer, redisServers } from '../support/stage.js';
import { until } from '../support/until.js';

/** Longer than a test may take: a wait for it fails. */
const NEVER_MS = 60_000;

let server: RedisServer;
beforeEach(async () => {
  server = await redisServer();
});

/** Waits until an operation that does not wait for the connection reports it. */
async function saysWhy(backend: LockBackend, problem: RegExp): Promise<void> {
  const says = async () => problem.test(JSON.stringify(await extendOn(backend, claimOn(freshKey()))));
  await until(says, { what: `an extension says ${problem}` });
}

/** A client of the application keeps commands that were sent before it knew of the break, and sends them again. */
const broken = ({ status }: { status: string }) => status !== 'ready';

const unavailable = (...problems: unknown[]) => ({
  status: 'unavailable',
  causes: problems.map((problem) => expect.objectContaining({ problem })),
});
const refused = expect.stringMatching(/^not connected \(\w+\): connect ECONNREFUSED 127\.0\.0\.1:\d+$/);

describe('A Redis that refuses connections', () => {
  it('later calls do not wait for a Redis that is known to refuse connections, and say why [G59]', async () => {
    const backend = await backendOf({ redis: server.url, commandTimeoutMs: NEVER_MS });
    await server.kill();
    await saysWhy(backend, /ECONNREFUSED/);
    for (let call = 0; call < 50; call++) expect(await attempt(backend)).toEqual(unavailable(refused));
    await server.restart();
    await untilGranted(backend);
  });

  it("calls do not wait for a Redis that refuses the connections of the application's client, and that client handles errors as before [G60]", async () => {
    const errors: string[] = [];
    const client = new Redis(server.url).on('error', (error: Error) => errors.push(error.message));
    onTestFinished(() => client.disconnect());
    const listeners = client.listenerCount('error');
    const backend = await backendOf({ redis: client, commandTimeoutMs: NEVER_MS });
    expect(client.listenerCount('error')).toBe(listeners);
    await server.kill();
    await until(() => broken(client), { what: 'the client knows about the break' });
    await saysWhy(backend, /ECONNREFUSED/);
    expect(await attempt(backend)).toEqual(unavailable(refused));
    expect(errors).not.toEqual([]);
    await server.restart();
    await untilGranted(backend);
  });

  it.each(['close', 'destroy'] as const)(
    'a client of node-redis that the application has connected itself is not opened again after its %s [G1024]',
    async (how) => {
      const client = createClient({ url: server.url }).on('error', () => {});
      await client.connect();
      const locks = await openLocks({ redis: client });
      const lock = await locks.acquire('held');
      const closed = client[how]();
      await expect(locks.acquire('late')).rejects.toThrow('The client was closed');
      await lock.release();
      await closed;
      expect(client.isOpen).toBe(false);
      await client.connect();
      onTestFinished(() => client.destroy());
      expect((await locks.acquire('again')).isHeld).toBe(true);
    },
  );
});

describe('A Redis that takes connections and does not answer', () => {
  it.each(['its own', 'of the application'])('a silent Redis costs one time limit: client %s [G61]', async (whose) => {
    const proxy = await proxyTo(server);
    const client = whose === 'its own' ? undefined : new Redis(proxy.url).on('error', () => {});
    if (client) onTestFinished(() => client.disconnect());
    const commandTimeoutMs = 1_000;
    const backend = await backendOf({ redis: client ?? proxy.url, commandTimeoutMs });
    proxy.hold();
    proxy.cut();
    if (client) await until(() => broken(client), { what: 'the client knows about the break' });
    expect(await attempt(backend)).toEqual(unavailable(expect.stringMatching(/^not connected/)));
    let waitedFor = 0;
    for (let call = 0; call < 20; call++) {
      const since = performance.now();
      expect(await attempt(backend)).toEqual(unavailable(expect.stringMatching(/^not connected/)));
      if (performance.now() - since > commandTimeoutMs / 2) waitedFor++;
    }
    expect(waitedFor).toBeLessThanOrEqual(1); // the process may have been paused
    proxy.release();
    await untilGranted(backend);
    proxy.cut();
    expect(await attempt(backend)).toMatchObject({ status: 'acquired' });
  });
});

describe('Nodes of a Redlock that refuse connections', () => {
  it('calls do not wait for Redlock nodes that refuse connections, and the error says why for each [G62]', async () => {
    const servers = await redisServers(3);
    const backend = await backendOf({ redlock: servers.map(({ url }) => url), commandTimeoutMs: NEVER_MS });
    await warmUp(backend);
    await Promise.all(servers.map((each) => each.kill()));
    const why = /ECONNREFUSED.*ECONNREFUSED.*ECONNREFUSED/;
    await saysWhy(backend, why);
    for (let call = 0; call < 50; call++) {
      expect(await attempt(backend)).toEqual(unavailable(refused, refused, refused));
    }
  });
});
