import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { acquireOn, claimOn, connected, freshKey, granted, releaseOn } from '../support/claims.js';
import type { RedisServer } from '../support/redis-server.js';
import { redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';

describe('One Redis server', () => {
  let server: RedisServer;
  let backend: LockBackend;

  beforeEach(async () => {
    server = await redisServer();
    await server.command('ACL', 'SETUSER', 'tenant', 'on', 'nopass', '~*', '+@all');
    backend = await connected({ redis: `redis://tenant:any@127.0.0.1:${server.port}`, commandTimeoutMs: 30_000 });
  });
  afterEach(() => backend.close());

  it('that refuses commands gets no releases of what it never granted', async () => {
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    await server.command('ACL', 'SETUSER', 'tenant', '-evalsha');
    const refused = expect.objectContaining({ problem: expect.stringMatching(/NOPERM/) });
    for (let round = 0; round < 30; round++) {
      const outcome = await acquireOn(backend, claimOn(freshKey()));
      expect(outcome).toEqual({ status: 'unavailable', causes: [refused] });
    }
    expect(await releaseOn(backend, claim)).toEqual({ status: 'unavailable', causes: [refused] });
    await server.resetCalls();
    await server.command('ACL', 'SETUSER', 'tenant', '+evalsha');
    await until(async () => (await server.command('EXISTS', `lock:{${claim.key}}`)) === 0, { what: 'it is released' });
    expect((await server.calls()).get).toBeLessThan(30); // each release reads its lock, and may be sent again
  });

  it('is asked once more for what it did not release, before the backend closes', async () => {
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    await server.command('ACL', 'SETUSER', 'tenant', '-evalsha');
    expect(await releaseOn(backend, claim)).toMatchObject({ status: 'unavailable' });
    await server.command('ACL', 'SETUSER', 'tenant', '+evalsha');
    await backend.close();
    expect(await ownerOn(server, claim.key)).toBeNull();
  });
});
