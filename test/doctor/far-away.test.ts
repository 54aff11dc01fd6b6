import { describe, expect, it } from 'vitest';
import type { LockUnavailableError, NodeDiagnosis } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { proxyTo, redisServer, redisServers } from '../support/stage.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

const DURABLE = ['--appendonly', 'yes'];

/** The address of a server as if it were far away. */
async function far(server: RedisServer, roundTripMs: number): Promise<string> {
  const proxy = await proxyTo(server);
  proxy.roundTripMs = roundTripMs;
  return proxy.url;
}

const farRedlock = async (roundTripMs: number) =>
  Promise.all((await redisServers(3)).map((server) => far(server, roundTripMs)));

describe('A Redlock that is far away', () => {
  it.each([
    [210, { ttlMs: 30_000 }, 200],
    [60, { ttlMs: 1_000 }, 50],
  ])(
    'the doctor and the error name commandTimeoutMs when the nodes of a Redlock are %i ms away (%o) [G280]',
    async (roundTripMs, options, limitMs) => {
      const locks = await openLocks({ redlock: await farRedlock(roundTripMs), ...options });
      const { nodes, findings } = await locks.diagnose<NodeDiagnosis>();
      expect(findings.map(({ severity, code }) => `${severity} ${code}`)).toEqual(Array(3).fill('error round-trip'));
      for (const { message } of findings) {
        expect(message).toMatch(
          new RegExp(
            String.raw`takes \d+ ms to answer, and commandTimeoutMs allows ${limitMs} ms: no lock can be taken\. Set commandTimeoutMs to \d+ or more\.$`,
          ),
        );
      }
      for (const node of nodes) expect(node.roundTripMs).toBeGreaterThanOrEqual(roundTripMs - 2);

      for (let attempt = 0; attempt < 3; attempt++) {
        const error = await locks.acquire(freshKey(), { waitMs: 0 }).catch((refused: LockUnavailableError) => refused);
        expect(error).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
        expect((error as Error).message).toMatch(
          /too far away, or too busy, for commandTimeoutMs: raise that option\.$/,
        );
      }
    },
  );
});

describe('One Redis that is far away', () => {
  it('the doctor warns when two round trips take longer than a command may [G281]', async () => {
    const locks = await openLocks({ redis: await far(await redisServer(...DURABLE), 600) });
    const finding = await until(
      // On a busy machine it may first take so long that it is an error.
      async () => (await locks.diagnose()).findings.find(({ severity }) => severity === 'warning'),
      { what: 'the doctor warns' },
    );
    expect(finding.code).toBe('round-trip');
    expect(finding.message).toMatch(/commandTimeoutMs allows 1000 ms: locks fail when it takes a little longer\./);
  });
});
