import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ACQUIRE, CONTEND, RESTORE, VOTE, VOTE_OR_QUEUE } from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';

const TTL_MS = 20_000;
const FENCED = (lock: string) => [lock, `${lock}:fence`];
const QUEUED = (lock: string) => [...FENCED(lock), `${lock}:queue`];

describe('A lock that was taken', () => {
  let server: RedisServer;
  let client: Redis;
  let runner: ScriptRunner;
  beforeAll(async () => {
    server = await RedisServer.start();
    client = new Redis(server.url);
    await client.ping();
    runner = new ScriptRunner(portOf(client), 5_000);
  });
  beforeEach(() => client.flushall());
  afterAll(async () => {
    client.disconnect();
    await server.stop();
  });

  it.each<[Script, keys: (lock: string) => string[], args: (string | number)[]]>([
    [ACQUIRE, FENCED, []],
    [VOTE, (lock) => [...FENCED(lock), 'lock:admission'], ['', '']],
    [CONTEND, QUEUED, [1, '', '', 0]],
    [VOTE_OR_QUEUE, (lock) => [...QUEUED(lock), 'lock:admission'], [1, '', '', 0, '', '']],
    [RESTORE, (lock) => [lock], []],
  ])('ends after its ttl: $name, alone and in a call for several', async (script, keys, args) => {
    const take = (lock: string) => runScript(runner, script, keys(lock), ['me', TTL_MS, ...args]);
    await take('alone');
    await together(runner, () => Promise.all([take('a'), take('b')]));
    for (const lock of ['alone', 'a', 'b']) {
      expect(await client.get(lock)).toBe('me');
      const leftMs = await client.pttl(lock);
      expect(leftMs).toBeGreaterThan(TTL_MS - 10_000);
      expect(leftMs).toBeLessThanOrEqual(TTL_MS);
    }
  });
});
