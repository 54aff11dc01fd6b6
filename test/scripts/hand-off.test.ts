import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { FORCE_RELEASE, RELEASE, TURN, WITHDRAW } from '../../lib/stores/redis/scripts/lua.js';
import { DEAF, HEARD, queueEntry, type Service, UNHEARD } from '../../lib/stores/redis/scripts/hand-off.js';
import { GRANT_TTL_MS, readMessage, type ToldGrant } from '../../lib/stores/node/messages.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { until } from '../support/until.js';

const KEYS = ['lock:fence', 'lock:{k}', 'lock:{k}:queue'];
const [FENCE, LOCK, QUEUE] = KEYS as [string, string, string];
const TTL_MS = 30_000;
const TOKEN = '1700000000000000';

let server: RedisServer;
let client: Redis;
let listener: Redis;
let runner: ScriptRunner;
const heard: string[] = [];
/** The fencing tokens that came with what was heard. */
const tokens: (number | undefined)[] = [];
const grants: (ToldGrant | undefined)[] = [];
/** The keys that were taken by force. */
const keys: string[] = [];

beforeAll(async () => {
  server = await RedisServer.start();
  [client, listener] = [new Redis(server.url), new Redis(server.url)];
  await client.ping();
  runner = new ScriptRunner(portOf(client), 5_000);
  listener.on('message', (channel, text) => {
    const { ticket, grant, takenKey } = readMessage(text);
    heard.push(`${channel} ${ticket}`);
    tokens.push(grant?.fencingToken);
    grants.push(grant);
    if (takenKey !== undefined) keys.push(takenKey);
  });
  await listener.subscribe('inbox:alive');
});
beforeEach(async () => {
  await client.flushall();
  heard.length = tokens.length = grants.length = keys.length = 0;
});
afterAll(async () => {
  client.disconnect();
  listener.disconnect();
  await server.stop();
});

const run = (script: Script, keys: string[], ...args: (string | number)[]): Promise<Reply> =>
  runScript(runner, script, keys, args);
const release = (owner: string) => run(RELEASE, KEYS, `${owner}@`);
const withdraw = (ticket: string, entry: string) => run(WITHDRAW, KEYS, `${ticket}@`, entry);
const turn = (
  owner: string,
  {
    give = '',
    count = 1,
    entry = '',
    number = '' as number | '',
    placed = 0,
    calls = 1,
    ttlMs = TTL_MS,
    sign = 'h',
  } = {},
) =>
  run(TURN, KEYS, sign, give && `${give}@`, `${owner}@`, ttlMs, count, entry, number, placed, calls) as Promise<Turned>;
type Turned = [isGranted: number, gave: number, us: number, ...rest: (number | string)[]];
const entryOf = (ticket: string, service: Service = 'grant', channel = 'inbox:alive', turns = 1) =>
  queueEntry(service, channel, ticket, turns);
const line = async (...entries: string[]) => {
  for (const [index, entry] of entries.entries()) await client.zadd(QUEUE, String(index + 1), entry);
};
/** The last signs of processes, by how many milliseconds ago they were given. */
const signs = async (ages: Record<string, number>) => {
  for (const [sign, ageMs] of Object.entries(ages)) await client.zadd(QUEUE, (ageMs - Date.now()) * 1_000, sign);
};
const queue = () => client.zrange(QUEUE, '0', '+inf', 'BYSCORE');
/** Somebody may stand in its queue. */
const hold = (owner: string) => client.set(LOCK, `${owner}@${TOKEN}+`, 'PX', TTL_MS);
/** The owner in the value of a lock whose queue may have waiters: all have such values here. */
const ownerOf = (value: unknown) => /^(.*)@\d{16}\+$/.exec(String(value))?.[1] ?? value;
const holder = async (lock = LOCK) => ownerOf(await client.get(lock));
const told = (...messages: string[]) =>
  until(() => heard.length >= messages.length, { what: 'it is told' }).then(() => expect(heard).toEqual(messages));

describe('a release', () => {
  it('grants the lock to the first in the queue for a short time, and tells it', async () => {
    await hold('me');
    await line(entryOf('first'), entryOf('second'));
    expect(await release('me')).toBe(1);
    expect(await holder()).toBe('first');
    expect(await client.pttl(LOCK)).toBeLessThanOrEqual(GRANT_TTL_MS);
    expect(await client.pttl(LOCK)).toBeGreaterThan(GRANT_TTL_MS - 1_000);
    expect(await queue()).toEqual([entryOf('second')]);
    await told('inbox:alive first');
  });

  it.each([
    ['too large for a token', () => client.set(FENCE, '9e18'), /lock:fence is out of range: delete it/],
    ['not finite', () => client.set(FENCE, 'inf'), /lock:fence is out of range: delete it/],
    ['no string', () => client.lpush(FENCE, 'by hand'), /WRONGTYPE/],
  ])(
    'of a lock with a counter that is %s frees it and wakes the next, who asks, and is told what is wrong',
    async (_name, write, problem) => {
      await write();
      await hold('me');
      const before = await client.dump(FENCE);
      await line(entryOf('dead', 'grant', 'inbox:dead'), entryOf('first'), entryOf('second'));
      expect(await release('me')).toBe(1);
      await told('inbox:alive first');
      expect(tokens).toEqual([undefined]);
      expect(await client.exists(LOCK)).toBe(0);
      await expect(turn('first', { entry: entryOf('first'), number: 0.5 })).rejects.toThrow(problem);
      expect(await client.exists(LOCK)).toBe(0);
      expect(await client.dump(FENCE)).toEqual(before);
      expect(await queue()).toEqual([entryOf('second')]);
    },
  );

  it('tells nothing to whom it passes over: replicas would pass it on, and patterns would count as listening', async () => {
    const published: string[] = [];
    const everything = new Redis(server.url);
    await everything.psubscribe('inbox:*');
    everything.on('pmessage', (_pattern, channel: string, text: string) => published.push(`${channel} ${text}`));
    await hold('me');
    await line(entryOf('elsewhere', 'grant', 'inbox:elsewhere'));
    await release('me');
    expect(await client.exists(LOCK)).toBe(0);
    await client.publish('inbox:last', 'last');
    await until(() => published.length > 0, { what: 'it is published' });
    expect(published).toEqual(['inbox:last last']);
    everything.disconnect();
  });

  it('tells no token when listeners may not be counted', async () => {
    await server.command('ACL', 'SETUSER', 'narrow', 'on', '>secret', 'allkeys', 'allchannels', '+@all', '-pubsub');
    const narrow = new Redis({ port: server.port, username: 'narrow', password: 'secret' });
    await narrow.ping();
    await hold('me');
    await line(entryOf('first'));
    await runScript(new ScriptRunner(portOf(narrow), 5_000), RELEASE, KEYS, ['me@']);
    await told('inbox:alive first');
    expect(tokens).toEqual([undefined]);
    expect(await holder()).toBe('first');
    narrow.disconnect();
  });

  it('grants it also to one that can hear nothing, and sends it no message', async () => {
    await hold('me');
    await line(entryOf('deaf'), entryOf('next'));
    await signs({ [`${UNHEARD} inbox:alive`]: 20, [`${HEARD} inbox:alive`]: 10, [`${DEAF} inbox:alive`]: 0 });
    expect(await release('me')).toBe(1);
    expect(await holder()).toBe('deaf');
    expect(await queue()).toEqual([entryOf('next')]);
    await client.publish('inbox:alive', 'last');
    await told('inbox:alive last');
  });

  it('passes over all whose processes have been silent for longer than a grant stands, however many, in one step [G270]', async () => {
    const dead = Array.from({ length: 20 }, (_, index) => entryOf(`dead-${index}`, 'grant', `inbox:dead-${index}`));
    await line(...dead, entryOf('elsewhere', 'grant', 'inbox:elsewhere'), entryOf('next'));
    for (const index of dead.keys()) await signs({ [`${UNHEARD} inbox:dead-${index}`]: 2_100 });
    await signs({ [`${UNHEARD} inbox:elsewhere`]: 1_500, [`${HEARD} inbox:alive`]: 50 });
    await hold('me');
    expect(await release('me')).toBe(1);
    expect(await holder()).toBe('elsewhere');
    expect(await queue()).toEqual([entryOf('next')]);
  });

  it('passes over a process that is silent also if the server counts it as listening', async () => {
    await line(entryOf('paused'), entryOf('next', 'grant', 'inbox:elsewhere'));
    await signs({ [`${HEARD} inbox:alive`]: 2_200, [`${UNHEARD} inbox:elsewhere`]: 100 });
    await hold('me');
    await release('me');
    expect(await holder()).toBe('next');
    await client.publish('inbox:alive', 'last');
    await told('inbox:alive last');
  });

  it('passes over nobody after a pause of the server, in which all were silent', async () => {
    await line(entryOf('elsewhere', 'grant', 'inbox:elsewhere'), entryOf('next'));
    await signs({ [`${UNHEARD} inbox:elsewhere`]: 60_900, [`${HEARD} inbox:alive`]: 60_000 });
    await hold('me');
    await release('me');
    expect(await holder()).toBe('elsewhere');
  });

  it('passes over only who is silent after the clock of the server was set back', async () => {
    await line(
      entryOf('silent', 'grant', 'inbox:silent'),
      entryOf('elsewhere', 'grant', 'inbox:elsewhere'),
      entryOf('before', 'grant', 'inbox:before'),
    );
    await signs({ [`${UNHEARD} inbox:silent`]: 2_500, [`${UNHEARD} inbox:elsewhere`]: 500 });
    await signs({ [`${UNHEARD} inbox:before`]: -3_600_000 });
    await hold('me');
    await release('me');
    expect(await holder()).toBe('elsewhere');
  });

  it('leaves no signs behind the last place', async () => {
    await hold('me');
    await line(entryOf('dead', 'grant', 'inbox:dead'), entryOf('last'));
    await signs({ [`${HEARD} inbox:dead`]: 900, [`${HEARD} inbox:alive`]: 0 });
    await release('me');
    expect(await holder()).toBe('last');
    expect(await client.exists(QUEUE)).toBe(0);
  });

  it('frees the lock when it may not publish, rather than grant it to processes that hear nothing of it', async () => {
    await server.command('ACL', 'SETUSER', 'mute', 'on', '>secret', 'allkeys', 'allchannels', '+@all', '-publish');
    const mute = new Redis({ port: server.port, username: 'mute', password: 'secret' });
    onTestFinished(() => mute.disconnect());
    await mute.ping();
    await line(entryOf('elsewhere', 'grant', 'inbox:elsewhere'), entryOf('alive'));
    await signs({ [`${UNHEARD} inbox:elsewhere`]: 0, [`${UNHEARD} inbox:alive`]: 0 });
    await hold('me');
    expect(await runScript(new ScriptRunner(portOf(mute), 5_000), RELEASE, KEYS, ['me@'])).toBe(1);
    expect(await client.exists(LOCK)).toBe(0);
  });

  /** So many places in the queue that this version does not know, and then one that it does. */
  const crowd = async (count: number) => {
    const places = Array.from({ length: count }, (_, index) => [index + 1, `x inbox:alive newer-${index}`]);
    for (let at = 0; at < count; at += 5_000) await client.zadd(QUEUE, ...places.slice(at, at + 5_000).flat());
    await client.zadd(QUEUE, count + 1, entryOf('known'));
  };

  it('hands the lock to the first place that it knows behind hundreds that it does not know', async () => {
    await crowd(900);
    await hold('me');
    expect(await release('me')).toBe(1);
    expect(await holder()).toBe('known');
    expect(await client.zcard(QUEUE)).toBe(900);
  });

  it('looks at a bounded number of places that it does not know, and frees the lock when there are more [G533]', async () => {
    await crowd(20_000);
    await hold('me');
    await client.config('RESETSTAT');
    expect(await release('me')).toBe(1);
    expect((await server.calls()).zrange).toBeLessThan(100);
    expect(await client.exists(LOCK)).toBe(0);
    expect(await client.zcard(QUEUE)).toBe(20_001);
  });

  it('passes over entries of unknown kinds and flags, which keep their places in the queue [G246]', async () => {
    const unknown = ['x inbox:alive newer', 'g+r inbox:alive flagged', 'by hand'];
    await line(...unknown, entryOf('known'), entryOf('next'));
    await hold('me');
    expect(await release('me')).toBe(1);
    expect(await holder()).toBe('known');
    await told('inbox:alive known');
    expect(await release('known')).toBe(1);
    expect(await release('next')).toBe(1);
    expect(await client.exists(LOCK)).toBe(0);
    expect(await queue()).toEqual(unknown);
    expect((await turn('fair', { entry: entryOf('fair') }))[0]).toBe(1);
    expect(await queue()).toEqual(unknown);
  });

  it('under Redlock frees the lock, and wakes the first that hears of it', async () => {
    await hold('me');
    await line(entryOf('dead', 'wake', 'inbox:dead'), entryOf('woken', 'wake'), entryOf('next', 'wake'));
    expect(await release('me')).toBe(1);
    expect(await client.exists(LOCK)).toBe(0);
    expect(await queue()).toEqual([entryOf('next', 'wake')]);
    await told('inbox:alive woken');
    expect(tokens).toEqual([undefined]); // no node alone can grant
  });

  it.each([
    ['is a string', () => client.set(QUEUE, 'by hand')],
    ['has an entry of another form', () => client.zadd(QUEUE, 1, 'by hand')],
    ['has only entries of a version to come', () => line('x inbox:alive first', 'g+r inbox:alive second')],
  ])('of a lock whose queue %s frees it all the same', async (_name, write) => {
    await hold('me');
    await write();
    expect(await release('me')).toBe(1);
    expect(await client.exists(LOCK)).toBe(0);
  });

  it('by force says so to the process that it was taken from, with the key', async () => {
    await hold('alive/3x');
    expect(await run(FORCE_RELEASE, KEYS, 'inbox:', 'a key of words', '')).toEqual([1, `alive/3x@${TOKEN}+`]);
    await told('inbox:alive alive/3x');
    expect(readMessage('alive/3x taken a key of words')).toEqual({ ticket: 'alive/3x', takenKey: 'a key of words' });
    expect(keys).toEqual(['a key of words']);
  });

  it('by force takes a lock also from another program, which hears nothing', async () => {
    await client.set(LOCK, 'alive/3x');
    expect(await run(FORCE_RELEASE, KEYS, 'inbox:', 'k', '')).toEqual([1, 'alive/3x']);
    await client.publish('inbox:alive', 'last');
    await told('inbox:alive last');
    expect(await client.exists(LOCK)).toBe(0);
  });
});

describe('who gives up', () => {
  it('is out of the queue, and confirmed to be, also where another program has written something else than a lock', async () => {
    await client.hset(LOCK, 'by', 'hand');
    await line(entryOf('b'));
    expect(await withdraw('b', entryOf('b'))).toBe(-1);
    expect(await client.exists(QUEUE)).toBe(0);
    expect(await client.hget(LOCK, 'by')).toBe('hand');
  });
});

describe('who waits', () => {
  it('has its place where its number says, and takes it again there after it was lost', async () => {
    await hold('other');
    const ask = async (ticket: string, number: number | '', placed = 0) =>
      (await turn(ticket, { entry: entryOf(ticket), number, placed }))[5];
    expect(await ask('b', 20)).toBe(0);
    expect(await ask('a', 10)).toBe(0);
    expect(await ask('b', 20, 1)).toBe(0); // it has it still
    expect(await queue()).toEqual([entryOf('a'), entryOf('b')]);
    await client.zrem(QUEUE, entryOf('a'));
    expect(await ask('a', 10, 1)).toBe(1);
    await client.del(QUEUE);
    expect(await ask('b', 20, 1)).toBe(1);
    expect(await ask('a', 10, 1)).toBe(1);
    expect(await queue()).toEqual([entryOf('a'), entryOf('b')]);
    expect(await ask('a', 30, 1)).toBe(0); // its first call has given up
    expect(await queue()).toEqual([entryOf('b'), entryOf('a')]);
  });

  it('is the last where its number is not known, and has no place in the future', async () => {
    await hold('other');
    await turn('a', { entry: entryOf('a'), number: 8e15 });
    expect(Number(await client.zscore(QUEUE, entryOf('a')))).toBeLessThanOrEqual(Date.now() * 1_000 + 1_000_000);
    await turn('b', { entry: entryOf('b') });
    expect(await queue()).toEqual([entryOf('a'), entryOf('b')]);
  });

  it('keeps the queue in Redis with each sign', async () => {
    await hold('other');
    await turn('a', { entry: entryOf('a') });
    expect(await client.pttl(QUEUE)).toBeGreaterThan(5_000);
    await client.pexpire(QUEUE, 1_000);
    await turn('a', { entry: entryOf('a') });
    expect(await client.pttl(QUEUE)).toBeGreaterThan(5_000);
    expect(await client.pttl(QUEUE)).toBeLessThanOrEqual(10_000);
  });

  it('gives a sign for its process with each attempt, for as long as it has a place', async () => {
    const sign = async (kind: string) => -Number(await client.zscore(QUEUE, `${kind} inbox:alive`));
    await hold('other');
    await turn('a', { entry: entryOf('a'), sign: UNHEARD });
    const first = await sign(UNHEARD);
    await turn('a', { entry: entryOf('a'), sign: HEARD });
    expect(await sign(HEARD)).toBeGreaterThan(first);
    expect(await sign(UNHEARD)).toBe(first);
    expect(await withdraw('a', entryOf('a'))).toBe(0);
    expect(await client.exists(QUEUE)).toBe(0);
  });

  it('removes the signs of processes that came by long ago when it takes a place', async () => {
    await line(entryOf('first'));
    await signs({ [`${HEARD} inbox:gone`]: 11_000, [`${UNHEARD} inbox:lately`]: 9_000 });
    await hold('other');
    await turn('a', { entry: entryOf('a') });
    expect(await client.zrange(QUEUE, '-inf', '(0', 'BYSCORE')).toEqual([
      `${HEARD} inbox:alive`,
      'n inbox:alive',
      `${UNHEARD} inbox:lately`,
    ]);
  });
});

describe('a lock that is free', () => {
  it('goes to the first in the queue, whoever asks for it', async () => {
    await line(entryOf('a'), entryOf('b'));
    const [isGranted, , , pttl, value] = await turn('c', { entry: entryOf('c') });
    expect([isGranted, ownerOf(value)]).toEqual([0, 'a']);
    expect(pttl).toBeLessThanOrEqual(GRANT_TTL_MS);
    expect(await queue()).toEqual([entryOf('b'), entryOf('c')]);
    await told('inbox:alive a');
  });

  it('goes to who asks for it if that one came first, with the number of the next as the bound', async () => {
    await line(entryOf('a')); // under the number 1
    expect(await turn('c', { entry: entryOf('c'), number: 0.5 })).toMatchObject([
      1,
      0,
      expect.any(Number),
      {},
      {},
      '1',
    ]);
    expect(await queue()).toEqual([entryOf('a')]);
  });

  it('goes to the first in the queue if that one asks for it, with the number of the next as the bound', async () => {
    await line(entryOf('a'), entryOf('b')); // under the numbers 1 and 2
    const [isGranted, , , , , bound] = await turn('a', { entry: entryOf('a'), number: 1, placed: 1 });
    expect([isGranted, bound]).toEqual([1, '2']);
    expect(await queue()).toEqual([entryOf('b')]);
  });

  it('who has no place does not overtake either', async () => {
    await line(entryOf('a'));
    const [isGranted, , , , value] = await turn('c');
    expect([isGranted, ownerOf(value)]).toEqual([0, 'a']);
    expect(await queue()).toEqual([]);
  });
});

describe('who gives a lock back and asks for it again', () => {
  it('gets it at once if nobody else waits, with a block of new tokens and the time as the bound', async () => {
    await hold('me');
    const [isGranted, gave, us, first, last, bound] = await turn('again', {
      give: 'me',
      entry: entryOf('again'),
      count: 5,
    });
    expect([isGranted, gave, Number(last) - Number(first), Number(bound)]).toEqual([1, 1, 4, us]);
    expect(Number(first)).toBeGreaterThan(Number(TOKEN));
    expect(await holder()).toBe('again');
    expect(await client.exists(QUEUE)).toBe(0);
  });

  it('stands behind those who wait, and the first of them is told how far it may go', async () => {
    await hold('me');
    await client.zadd(QUEUE, 10, entryOf('a', 'grant', 'inbox:alive', 3));
    const [isGranted, gave] = await turn('again', { give: 'me', entry: entryOf('again'), number: 20 });
    expect([isGranted, gave]).toEqual([0, 1]);
    expect(await holder()).toBe('a');
    expect(await queue()).toEqual([entryOf('again')]);
    await told('inbox:alive a');
    const { fencingToken, lastToken, boundUs } = grants[0]!;
    expect([lastToken - fencingToken, boundUs]).toEqual([2, 20]);
    expect(await client.get(LOCK)).toBe(`a@${lastToken}+`);
  });

  it.each([
    ['another owner holds it', () => hold('other'), -1, 'other'],
    ['nobody holds it', () => client.del(LOCK), 0, 'again'],
  ])('learns that %s, and asks all the same', async (_name, prepare, expected, owner) => {
    await prepare();
    const [, gave] = await turn('again', { give: 'me', entry: entryOf('again') });
    expect(gave).toBe(expected);
    expect(await holder()).toBe(owner);
  });

  it('has given it back also where no token can be minted, and says so', async () => {
    await client.set(FENCE, '9e18');
    await hold('me');
    expect(await turn('again', { give: 'me', entry: entryOf('again') })).toEqual([
      expect.stringContaining('out of range'),
      1,
    ]);
    expect(await client.exists(LOCK)).toBe(0);
  });

  it('gets new tokens for a lock that was handed over to it, as the first ones may be in use [G627]', async () => {
    await hold('me');
    await line(entryOf('a', 'grant', 'inbox:alive', 3));
    await release('me');
    await told('inbox:alive a');
    const { lastToken } = grants[0]!;
    const [isGranted, , , first] = await turn('a', {
      entry: entryOf('a', 'grant', 'inbox:alive', 3),
      count: 3,
      placed: 1,
    });
    expect(isGranted).toBe(1);
    expect(Number(first)).toBeGreaterThan(lastToken);
  });
});
