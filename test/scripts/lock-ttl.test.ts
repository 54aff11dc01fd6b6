import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ACQUIRE, RESTORE, TURN, VOTE, VOTE_OR_QUEUE } from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';

const TTL_MS = 20_000;
const TOKEN = '1700000000000000';

describe('A lock that was taken', () => {
  let server: RedisServer;
  let client: Redis;
  let runner: ScriptRunner;
  beforeAll(async () => {
    server = await RedisServer.start();
    client = new Redis(server.url);
    await client.ping();
    runner = new ScriptRunner(portOf(client), 30_000);
  });
  beforeEach(() => client.flushall());
  afterAll(async () => {
    client.disconnect();
    await server.stop();
  });

  it.each<[Script, keys: (lock: string) => string[], args: (string | number)[]]>([
    [ACQUIRE, (lock) => ['lock:fence', lock], [TTL_MS, 'me@']],
    [VOTE, (lock) => ['lock:admission', lock, `${lock}:fence`], ['', TTL_MS, `me@${TOKEN}`]],
    [TURN, (lock) => ['lock:fence', lock, `${lock}:queue`], ['h', '', 'me@', TTL_MS, 1, '', '', 0]],
    [
      VOTE_OR_QUEUE,
      (lock) => ['lock:admission', lock, `${lock}:fence`, `${lock}:queue`],
      ['', TTL_MS, `me@${TOKEN}`, '', ''],
    ],
    [RESTORE, (lock) => [lock], [TTL_MS, 'me@', TOKEN]],
  ])('ends after its ttl: $name, alone and in a call for several', async (script, keys, args) => {
    const take = (lock: string) => runScript(runner, script, keys(lock), args);
    await take('alone');
    await together(runner, () => Promise.all([take('a'), take('b')]));
    for (const lock of ['alone', 'a', 'b']) {
      expect(await client.get(lock)).toMatch(/^me@\d{16}\+?$/);
      const leftMs = await client.pttl(lock);
      expect(leftMs).toBeGreaterThan(TTL_MS - 10_000);
      expect(leftMs).toBeLessThanOrEqual(TTL_MS);
    }
  });
});
