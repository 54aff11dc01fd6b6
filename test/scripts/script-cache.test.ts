import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  ACQUIRE,
  EXTEND,
  FORCE_RELEASE,
  INSPECT,
  RAISE_FENCE,
  RELEASE,
  RESTORE,
} from '../../lib/stores/redis/scripts/lua.js';
import { ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';

const SCRIPTS = [ACQUIRE, EXTEND, RESTORE, RAISE_FENCE, INSPECT, RELEASE, FORCE_RELEASE];
const RAISED = '2000000000000000';
const ARGS: Record<string, (string | number)[]> = {
  acquire: [10_000, 'me@'],
  extend: [10_000, 'me@'],
  restore: [10_000, 'me@', RAISED],
  'raise-fence': ['me@', RAISED],
  inspect: [],
  release: ['me@'],
  'force-release': ['inbox:', 'key'],
};
const KEYS: Record<string, (lock: string) => string[]> = {
  acquire: (lock) => ['lock:fence', lock],
  extend: (lock) => [lock],
  restore: (lock) => [lock],
  'raise-fence': (lock) => [lock, 'lock:fence'],
  inspect: (lock) => [lock, `${lock}:queue`, `${lock}:calls`],
  release: (lock) => ['lock:fence', lock, `${lock}:queue`],
  'force-release': (lock) => ['lock:fence', lock, `${lock}:queue`],
};

describe('The script cache of Redis', () => {
  let server: RedisServer;
  let client: Redis;
  let runner: ScriptRunner;

  beforeAll(async () => {
    server = await RedisServer.start();
    client = new Redis(server.url);
    runner = new ScriptRunner(portOf(client), 30_000);
  });
  afterAll(async () => {
    client.disconnect();
    await server.stop();
  });
  beforeEach(async () => {
    await client.flushall();
    await client.script('FLUSH');
    await server.resetCalls();
  });

  const run = (name: string, key = 'key') => {
    const script = SCRIPTS.find((candidate) => candidate.name === name)!;
    return runScript(runner, script, KEYS[name]!(key), ARGS[name]!);
  };

  it.each(SCRIPTS.map(({ name }) => name))('is filled by the first use of %s, and used from then on', async (name) => {
    await run(name);
    expect(await server.calls()).toMatchObject({ evalsha: 1, eval: 1 });
    await run(name);
    expect(await server.calls()).toMatchObject({ evalsha: 2, eval: 1 });
    await client.script('FLUSH');
    await run(name);
    expect(await server.calls()).toMatchObject({ evalsha: 3, eval: 2 });
  });

  it('may be flushed between any two operations on a lock', async () => {
    const answers: unknown[] = [];
    for (const name of ['acquire', 'extend', 'raise-fence', 'inspect', 'release', 'force-release']) {
      await client.script('FLUSH');
      answers.push(await run(name, 'flushed'));
    }
    const token: unknown = expect.stringMatching(/^\d{16}$/);
    expect(answers).toEqual([token, 1, 1, [expect.any(Number), `me@${RAISED}`, expect.any(Number), ''], 1, 0]);
  });

  it('may be empty for a batch of many calls', async () => {
    const many = Array.from({ length: 125 }, (_, index) => `many:${index}`);
    const tokens = await together(runner, () => Promise.all(many.map((key) => run('acquire', key))));
    expect(tokens).toEqual(Array(125).fill(expect.stringMatching(/^\d{16}$/)));
    expect(await server.calls()).toMatchObject({ evalsha: 4, eval: 4 });
  });
});
