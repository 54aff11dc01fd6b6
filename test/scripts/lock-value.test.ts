import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  ACQUIRE,
  EXTEND,
  EXTEND_AND_TELL,
  FORCE_RELEASE,
  INSPECT,
  KEEP,
  RAISE_FENCE,
  RELEASE,
  RESTORE,
  TURN,
  VOTE,
  VOTE_OR_QUEUE,
  WITHDRAW,
} from '../../lib/stores/redis/scripts/lua.js';
import { holdingOf } from '../../lib/stores/redis/node/node-answers.js';
import { queueEntry, UNHEARD } from '../../lib/stores/redis/scripts/hand-off.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';

const [FENCE, LOCK, QUEUE, ADMISSION] = ['lock:fence', 'lock:{k}', 'lock:{k}:queue', 'lock:admission'];
const CALLS = 'lock:{k}:calls';
const TTL_MS = 30_000;
/** How long a lock is held before a script, in milliseconds. */
const EARLIER_MS = 5_000;
/** How long it is kept, in milliseconds. */
const KEPT_MS = 10_000;
const TOKEN = '1700000000000000';
const LATER = '1700000000000009';

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

const hold = (value: string) => client.set(LOCK, value, 'PX', EARLIER_MS);
/** Of a process that does not listen. */
const unheard = (ticket: string) => queueEntry('grant', 'inbox:elsewhere', ticket, 1);
const queueUp = async (ticket: string) => {
  await client.zadd(QUEUE, 1, unheard(ticket));
  await client.zadd(QUEUE, -Date.now() * 1_000, `${UNHEARD} inbox:elsewhere`);
};
const places = () => client.zrange(QUEUE, '0', '+inf', 'BYSCORE');
const wake = (ticket: string) => queueEntry('wake', 'inbox:elsewhere', ticket, 1);

/** The first token, or the ttl and the value of another owner. */
const answerOf = async (asked: Promise<Reply>): Promise<Reply> => {
  const reply = await asked;
  if (!Array.isArray(reply)) return reply;
  return reply[0] === 1 && reply.length === 6 ? reply[3]! : reply.slice(-3, -1);
};

// What each script does for an owner.
const acquire = (owner: string) => runScript(runner, ACQUIRE, [FENCE, LOCK], [TTL_MS, `${owner}@`]);
const contend = (owner: string, entry = '') =>
  answerOf(runScript(runner, TURN, [FENCE, LOCK, QUEUE], [UNHEARD, '', `${owner}@`, TTL_MS, 1, entry, '', 0, 1]));
const vote = (owner: string) => runScript(runner, VOTE, [ADMISSION, LOCK, FENCE], ['', TTL_MS, `${owner}@${LATER}`]);
const voteOrQueue = (owner: string, entry = '') =>
  answerOf(
    runScript(runner, VOTE_OR_QUEUE, [ADMISSION, LOCK, FENCE, QUEUE], ['', TTL_MS, `${owner}@${LATER}`, entry, 0, 1]),
  );
const extend = (owner: string) => runScript(runner, EXTEND, [LOCK], [TTL_MS, `${owner}@`]);
/** For how long it is shown how many calls wait, in milliseconds. */
const SHOWN_MS = 15_000;
const tell = (owner: string, calls = 3) =>
  runScript(runner, EXTEND_AND_TELL, [LOCK, CALLS], [TTL_MS, `${owner}@`, calls, SHOWN_MS]);
/** How many calls wait behind the lock, as an inspection shows it. */
const behind = async () => holdingOf(await runScript(runner, INSPECT, [LOCK, QUEUE, CALLS], []))?.holders[0].calls;
const restore = (owner: string) => runScript(runner, RESTORE, [LOCK], [TTL_MS, `${owner}@`, LATER]);
const raise = (owner: string) => runScript(runner, RAISE_FENCE, [LOCK, FENCE], [`${owner}@`, LATER]);
const release = (owner: string) => runScript(runner, RELEASE, [FENCE, LOCK, QUEUE], [`${owner}@`]);
const keep = (owner: string) => runScript(runner, KEEP, [LOCK], [KEPT_MS, `${owner}@`]);
const withdraw = (owner: string) => runScript(runner, WITHDRAW, [FENCE, LOCK, QUEUE], [`${owner}@`, wake(owner)]);

type Operate = (owner: string) => Promise<Reply>;
const flags = [
  ['without a queue', ''],
  ['with a queue', '+'],
] as const;
const KEPT = ['while it is kept', '='] as const;
const REFUSED = [expect.any(Number), expect.any(String)];

describe.each([
  ['x/1', 'x/10'],
  ['x/10', 'x/1'],
  ['x', 'x@1700000000000000'],
  ['x@1700000000000000', 'x'],
  ['1', '11'],
])('The lock of %s', (holder, other) => {
  describe.each([...flags, KEPT])('%s', (_name, flag) => {
    const value = `${holder}@${TOKEN}${flag}`;
    const refusal = [expect.any(Number), value];
    beforeEach(() => client.set(FENCE, TOKEN));

    it.each<[string, Operate, unknown]>([
      ['acquire', acquire, refusal],
      ['contend', contend, refusal],
      ['vote', vote, refusal],
      ['vote-or-queue', voteOrQueue, refusal],
      ['extend', extend, -1],
      ['extend-and-tell', tell, -1],
      ['restore', restore, -1],
      ['raise-fence', raise, 0],
      ['release', release, -1],
      ['keep', keep, -1],
      ['withdraw', withdraw, 0],
    ])(`is not that of ${other}: %s`, async (_script, operate, answer) => {
      await hold(value);
      await client.zadd(QUEUE, 1, wake('somebody else'));
      expect(await operate(other)).toEqual(answer);
      expect(await client.get(LOCK)).toBe(value);
      expect(await client.pttl(LOCK)).toBeLessThanOrEqual(EARLIER_MS);
      expect(await client.get(FENCE)).toBe(TOKEN);
      expect(await places()).toEqual([wake('somebody else')]);
    });

    it('is kept for its own owner, with its token and a = for the +, for the time of the last repetition', async () => {
      await hold(value);
      for (const ttlMs of [EARLIER_MS, 60_000]) {
        await client.pexpire(LOCK, ttlMs);
        expect(await keep(holder)).toBe(1);
        expect(await client.get(LOCK)).toBe(`${holder}@${TOKEN}=`);
        expect(await client.pttl(LOCK)).toBeGreaterThan(EARLIER_MS);
        expect(await client.pttl(LOCK)).toBeLessThanOrEqual(KEPT_MS);
      }
    });
  });

  it.each<[string, Operate, unknown]>([
    ['acquire', acquire, REFUSED],
    ['contend', contend, REFUSED],
    ['vote', vote, REFUSED],
    ['vote-or-queue', voteOrQueue, REFUSED],
    ['extend', extend, -1],
    ['restore', restore, -1],
    ['raise-fence', raise, 0],
    ['withdraw', withdraw, 0],
  ])('stays as it is while it is kept, also for its own owner: %s', async (_script, operate, answer) => {
    const value = `${holder}@${TOKEN}=`;
    await client.set(FENCE, TOKEN);
    await hold(value);
    expect(await operate(holder)).toEqual(answer);
    expect(await client.get(LOCK)).toBe(value);
    expect(await client.pttl(LOCK)).toBeGreaterThan(0);
    expect(await client.pttl(LOCK)).toBeLessThanOrEqual(EARLIER_MS);
    expect(await client.get(FENCE)).toBe(TOKEN);
  });

  describe.each(flags)('%s, as long as its work goes on,', (_name, flag) => {
    const value = `${holder}@${TOKEN}${flag}`;
    beforeEach(() => client.set(FENCE, TOKEN));

    it.each<[string, Operate, unknown]>([
      ['acquire', acquire, TOKEN],
      ['vote', vote, TOKEN],
      ['vote-or-queue', voteOrQueue, TOKEN],
      ['extend', extend, 1],
      ['restore', restore, 1],
    ])('is extended for its own owner, and keeps its token and its +: %s', async (_script, operate, answer) => {
      await hold(value);
      expect(await operate(holder)).toBe(answer);
      expect(await client.get(LOCK)).toBe(value);
      expect(await client.pttl(LOCK)).toBeGreaterThan(EARLIER_MS);
      expect(await client.get(FENCE)).toBe(TOKEN);
    });

    it('has the token that it is raised to, and keeps its + and its ttl', async () => {
      await hold(value);
      expect(await raise(holder)).toBe(1);
      expect(await client.get(LOCK)).toBe(`${holder}@${LATER}${flag}`);
      expect(await client.pttl(LOCK)).toBeGreaterThan(0);
      expect(await client.pttl(LOCK)).toBeLessThanOrEqual(EARLIER_MS);
    });

    it.each<[string, Operate]>([['contend', contend]])(
      'is confirmed to its own owner with a new token, and a +: %s',
      async (_script, operate) => {
        await hold(value);
        const token = await operate(holder);
        expect(Number(token)).toBeGreaterThan(Number(TOKEN));
        expect(await client.get(LOCK)).toBe(`${holder}@${String(token)}+`);
        expect(await client.pttl(LOCK)).toBeGreaterThan(EARLIER_MS);
      },
    );

    it.each<[string, Operate]>([
      ['release', release],
      ['withdraw', withdraw],
    ])('is given back by its own owner: %s', async (_script, operate) => {
      await hold(value);
      expect(await operate(holder)).toBe(1);
      expect(await client.exists(LOCK)).toBe(0);
    });
  });
});

describe('How many calls wait behind a lock in the process of its holder', () => {
  describe.each(flags)('%s', (_name, flag) => {
    it('is shown for the time that the holder has named, and the lock is extended', async () => {
      await hold(`x/1@${TOKEN}${flag}`);
      expect(await behind()).toBeUndefined();
      for (const calls of [3, 1, 12_345]) {
        await client.pexpire(LOCK, EARLIER_MS);
        expect(await tell('x/1', calls)).toBe(1);
        expect(await client.get(LOCK)).toBe(`x/1@${TOKEN}${flag}`);
        expect(await client.pttl(LOCK)).toBeGreaterThan(EARLIER_MS);
        expect(await behind()).toBe(calls);
      }
      expect(await client.pttl(CALLS)).toBeGreaterThan(EARLIER_MS);
      expect(await client.pttl(CALLS)).toBeLessThanOrEqual(SHOWN_MS);
    });

    it.each(['x/10', 'x', 'y/1', `x/1@${TOKEN}`])('is not shown of %s, who holds it next', async (next) => {
      await hold(`x/1@${TOKEN}${flag}`);
      await tell('x/1');
      await hold(`${next}@${TOKEN}${flag}`);
      expect(await behind()).toBeUndefined();
      expect(await tell('x/1', 5)).toBe(-1);
      expect(await client.get(CALLS)).toBe('x/1@3');
    });
  });

  it('is not shown of a lock that is kept, shared or free', async () => {
    await hold(`x/1@${TOKEN}`);
    await tell('x/1');
    for (const value of [`x/1@${TOKEN}=`, `~s@${TOKEN} ${Date.now() + TTL_MS} 1 0 x/1`, 'x/1']) {
      await hold(value);
      expect(await behind()).toBeUndefined();
    }
    await client.del(LOCK);
    expect(await behind()).toBeUndefined();
    expect(await tell('x/1')).toBe(0);
  });

  it('is not told where the server has no room for it, but the lock is extended', async () => {
    await hold(`x/1@${TOKEN}`);
    await client.config('SET', 'maxmemory', 1);
    try {
      expect(await tell('x/1')).toBe(1);
      expect(await client.pttl(LOCK)).toBeGreaterThan(EARLIER_MS);
    } finally {
      await client.config('SET', 'maxmemory', 0);
    }
  });

  it('is nothing where another program has written its key', async () => {
    await hold(`x/1@${TOKEN}`);
    for (const text of ['x/1@', 'x/1@3 ', '@3', '3', 'word', '']) {
      await client.set(CALLS, text);
      expect(await behind()).toBeUndefined();
    }
    await client.del(CALLS);
    await client.rpush(CALLS, 'a', 'list');
    expect(await behind()).toBeUndefined();
    expect(await tell('x/1')).toBe(1); // and is told over that
    expect(await behind()).toBe(3);
  });
});

describe.each([
  ['contend', contend],
  ['vote-or-queue', voteOrQueue],
])('The + of a value that is held by another: %s', (_script, ask) => {
  it('is set when a place in the queue is taken, once, and the ttl stays', async () => {
    await hold(`other@${TOKEN}`);
    for (const ticket of ['a', 'b', 'a']) {
      await ask(ticket, unheard(ticket));
      expect(await client.get(LOCK)).toBe(`other@${TOKEN}+`);
      expect(await client.pttl(LOCK)).toBeGreaterThan(0);
      expect(await client.pttl(LOCK)).toBeLessThanOrEqual(EARLIER_MS);
    }
    expect(await places()).toEqual([unheard('a'), unheard('b')]);
  });

  it('is not set when no place is taken', async () => {
    await hold(`other@${TOKEN}`);
    await ask('a');
    expect(await client.get(LOCK)).toBe(`other@${TOKEN}`);
  });

  it.each([
    'other',
    'foo@123',
    'foo@',
    '@',
    '@5',
    `@${TOKEN}`,
    '',
    '1700000000000000',
    `other@${TOKEN}0`,
    'other@170000000000000',
    'other@17000000000000a0',
    `other@${TOKEN} `,
    `other@${TOKEN}++`,
  ])('is never set in a value of another program, though the waiter has a place: %j', async (value) => {
    await client.set(LOCK, value);
    expect(await ask('a', unheard('a'))).toEqual([-1, value]);
    expect(await client.get(LOCK)).toBe(value);
    expect(await client.pttl(LOCK)).toBe(-1);
    expect(await places()).toEqual([unheard('a')]);
  });

  it('is not set in a lock that is kept, which nobody gives back, though the waiter has a place', async () => {
    await hold(`other@${TOKEN}=`);
    await ask('a', unheard('a'));
    expect(await client.get(LOCK)).toBe(`other@${TOKEN}=`);
    expect(await client.pttl(LOCK)).toBeLessThanOrEqual(EARLIER_MS);
    expect(await places()).toEqual([unheard('a')]);
  });

  it('is set in a lock of this library that has no ttl, which it gets none by', async () => {
    await client.set(LOCK, `other@${TOKEN}`);
    await ask('a', unheard('a'));
    expect(await client.get(LOCK)).toBe(`other@${TOKEN}+`);
    expect(await client.pttl(LOCK)).toBe(-1);
  });
});

describe('The + of a value', () => {
  const value = () => client.get(LOCK);

  const endsAfterItsTtl = async () => {
    expect(await client.pttl(LOCK)).toBeGreaterThan(TTL_MS - 10_000);
    expect(await client.pttl(LOCK)).toBeLessThanOrEqual(TTL_MS);
  };

  it.each([
    ['contend', contend],
    ['vote-or-queue', voteOrQueue],
    ['restore', restore],
  ])('is there after every grant that may leave waiters, and the lock ends after its ttl: %s', async (script, take) => {
    await take('me');
    expect([script, await value()]).toEqual([script, expect.stringMatching(/^me@\d{16}\+$/)]);
    await endsAfterItsTtl();
  });

  it.each([
    ['acquire', acquire],
    ['vote', vote],
  ])(
    'is not there when an attempt without a place finds the lock free, which ends after its ttl: %s',
    async (script, take) => {
      await take('me');
      expect([script, await value()]).toEqual([script, expect.stringMatching(/^me@\d{16}$/)]);
      await endsAfterItsTtl();
    },
  );

  it.each([
    ['release', () => release('me')],
    ['force-release', () => runScript(runner, FORCE_RELEASE, [FENCE, LOCK, QUEUE], ['inbox:', 'k', ''])],
  ])('is there after a lock that was kept goes to the next before its time: %s', async (script, pass) => {
    await hold(`me@${TOKEN}=`);
    await queueUp('next');
    await pass();
    expect([script, await value()]).toEqual([script, expect.stringMatching(/^next@\d{16}\+$/)]);
  });

  it('is what a release needs to look into the queue: without it, there is a GET and a DEL', async () => {
    await acquire('me');
    await release('me'); // knows the script
    await hold(`me@${TOKEN}`);
    await queueUp('next');
    await server.resetCalls();
    expect(await release('me')).toBe(1);
    const { zrange, zrem, set, publish, time, get, del } = await server.calls();
    expect({ zrange, zrem, set, publish, time, get, del }).toEqual({ get: 1, del: 1 });
    expect(await places()).toEqual([unheard('next')]);

    await hold(`me@${TOKEN}+`);
    await client.zadd(QUEUE, 2, unheard('another'));
    await server.resetCalls();
    expect(await release('me')).toBe(1);
    expect(await server.calls()).toMatchObject({ zrange: 1, zrem: 1, publish: 1 });
    expect(await value()).toMatch(/^next@/);
  });
});
