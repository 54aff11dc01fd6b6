import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AcquireOutcome, LockBackend } from 'nest-redis-lock/testing';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { acquireOn, claimOn, connected, freshKey } from '../support/claims.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { replicaOf } from '../support/replica-of.js';
import { proxyTo } from '../support/stage.js';
import { until } from '../support/until.js';

describe('A node of a Redlock', () => {
  let nodes: RedlockNodes;
  const backends: LockBackend[] = [];

  beforeEach(async () => {
    nodes = await RedlockNodes.start(3);
  });
  afterEach(async () => {
    await Promise.all(backends.splice(0).map((backend) => backend.close()));
    await nodes.stop();
  });

  const open = async (options: RedisLockModuleOptions) => {
    const backend = await connected({ commandTimeoutMs: 10_000, ...options });
    backends.push(backend);
    return backend;
  };
  const attempt = (backend: LockBackend) => acquireOn(backend, claimOn(freshKey(), 900));
  const causesOf = (outcome: AcquireOutcome) => (outcome.status === 'unavailable' ? outcome.causes : []);

  it('that was a replica until now does not vote, however long it has been up', async () => {
    const proxy = await proxyTo(nodes.servers[1]!);
    const replica = await replicaOf(nodes.servers[1]!);
    const backend = await open({ redlock: [nodes.urls[0]!, proxy.url, nodes.urls[2]!], ttlMs: 900 });
    await until(async () => (await attempt(backend)).status === 'acquired', { what: 'a lock is granted' });
    const uptime = async () =>
      Number(/uptime_in_seconds:(\d+)/.exec(String(await replica.command('INFO', 'server')))![1]);
    await until(async () => (await uptime()) >= 4, { what: 'it has been up for four seconds' });
    await nodes.kill(2);
    await replica.command('REPLICAOF', 'NO', 'ONE');
    proxy.retarget(replica.port);
    proxy.cut();
    const abstaining = await until(
      async () => {
        const outcome = await attempt(backend);
        expect(outcome.status).not.toBe('acquired');
        const causes = causesOf(outcome).filter(({ problem }) => /^it votes in|^it has lost its data/.test(problem));
        return causes.length > 0 ? causes : undefined;
      },
      { what: 'the backend has seen it' },
    );
    expect(abstaining.map(({ node }) => node)).toEqual([`127.0.0.1:${proxy.port}`]);
  });

  it('that may not be asked by INFO does not vote, and says what to do', async () => {
    for (const server of nodes.servers) await server.command('ACL', 'SETUSER', 'default', '-info');
    const causes = causesOf(await attempt(await open({ redlock: nodes.urls, ttlMs: 900 })));
    expect(causes.map(({ node }) => node)).toEqual(nodes.names(0, 1, 2));
    expect(causes[0]!.problem).toContain('NOPERM');
    expect(causes[0]!.advice).toBe('Give its user that right, or set admission: false.');
  });
});
