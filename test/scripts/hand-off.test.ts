import { describe, expect, it } from 'vitest';
import { runScript } from '../support/run-script.js';
import {
  client,
  heard,
  KEYS,
  LISTENING,
  LOCK,
  onServer,
  QUEUE,
  queue,
  queueEntry,
  RELEASE,
  run,
  runnerWith,
  server,
  told,
  TOKEN,
  TTL_MS,
  TURN,
  UNVERIFIED,
  withdraw,
} from './script-server.js';

onServer();

const release = (owner: string) => run(RELEASE, KEYS, `${owner}@`);
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
type Turned = [kind: string, gave: number, us: number, ...rest: (number | string)[]];
const entryOf = (ticket: string, service: 'grant' | 'wake' = 'grant', channel = 'inbox:alive', turns = 1) =>
  queueEntry(service, channel, ticket, turns);
const line = async (...entries: string[]) => {
  for (const [index, entry] of entries.entries()) await client.zadd(QUEUE, String(index + 1), entry);
};
/** The last signs of processes, by their age in milliseconds. */
const signs = async (ages: Record<string, number>) => {
  for (const [sign, ageMs] of Object.entries(ages)) await client.zadd(QUEUE, (ageMs - Date.now()) * 1_000, sign);
};
/** Its queue may have waiters. */
const hold = (owner: string) => client.set(LOCK, `${owner}@${TOKEN}+`, 'PX', TTL_MS);
/** The owner in the value of a lock whose queue may have waiters: all values here are of this kind. */
const ownerOf = (value: unknown) => /^(.*)@\d{16}\+$/.exec(String(value))?.[1] ?? value;
const holder = async (lock = LOCK) => ownerOf(await client.get(lock));

describe('a release', () => {
  it('sends no token when listeners may not be counted', async () => {
    const narrow = await runnerWith('allkeys', 'allchannels', '+@all', '-pubsub');
    await hold('me');
    await line(entryOf('first'));
    await runScript(narrow, RELEASE, KEYS, ['me@']);
    await told('first');
    expect(heard[0]!.grant).toBeUndefined();
    expect(await holder()).toBe('first');
  });

  it('passes over all whose processes have been silent for longer than a grant lasts, however many, in one step [G270]', async () => {
    const dead = Array.from({ length: 20 }, (_, index) => entryOf(`dead-${index}`, 'grant', `inbox:dead-${index}`));
    await line(...dead, entryOf('elsewhere', 'grant', 'inbox:elsewhere'), entryOf('next'));
    for (const index of dead.keys()) await signs({ [`${UNVERIFIED} inbox:dead-${index}`]: 2_100 });
    await signs({ [`${UNVERIFIED} inbox:elsewhere`]: 1_500, [`${LISTENING} inbox:alive`]: 50 });
    await hold('me');
    expect(await release('me')).toBe(1);
    expect(await holder()).toBe('elsewhere');
    expect(await queue()).toEqual([entryOf('next')]);
  });

  it('passes over only silent processes after the clock of the server was set back', async () => {
    await line(
      entryOf('silent', 'grant', 'inbox:silent'),
      entryOf('elsewhere', 'grant', 'inbox:elsewhere'),
      entryOf('before', 'grant', 'inbox:before'),
    );
    await signs({ [`${UNVERIFIED} inbox:silent`]: 2_500, [`${UNVERIFIED} inbox:elsewhere`]: 500 });
    await signs({ [`${UNVERIFIED} inbox:before`]: -3_600_000 });
    await hold('me');
    await release('me');
    expect(await holder()).toBe('elsewhere');
  });

  it('frees the lock when it may not publish, instead of granting it to processes that do not learn of it', async () => {
    const mute = await runnerWith('allkeys', 'allchannels', '+@all', '-publish');
    await line(entryOf('elsewhere', 'grant', 'inbox:elsewhere'), entryOf('alive'));
    await signs({ [`${UNVERIFIED} inbox:elsewhere`]: 0, [`${UNVERIFIED} inbox:alive`]: 0 });
    await hold('me');
    expect(await runScript(mute, RELEASE, KEYS, ['me@'])).toBe(1);
    expect(await client.exists(LOCK)).toBe(0);
  });

  /** This many places in the queue that this version does not know, and then one that it knows. */
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
    await told('known');
    expect(await release('known')).toBe(1);
    expect(await release('next')).toBe(1);
    expect(await client.exists(LOCK)).toBe(0);
    expect(await queue()).toEqual(unknown);
    expect((await turn('fair', { entry: entryOf('fair') }))[0]).toBe('granted');
    expect(await queue()).toEqual(unknown);
  });

  it('of a lock whose queue is a string frees it all the same', async () => {
    await hold('me');
    await client.set(QUEUE, 'by hand');
    expect(await release('me')).toBe(1);
    expect(await client.exists(LOCK)).toBe(0);
  });
});

describe('a waiting process', () => {
  it('has its place where its number says, and takes it again there after it was lost', async () => {
    await hold('other');
    const ask = async (ticket: string, number: number | '', placed = 0) =>
      (await turn(ticket, { entry: entryOf(ticket), number, placed }))[5];
    expect(await ask('b', 20)).toBe(0);
    expect(await ask('a', 10)).toBe(0);
    expect(await ask('b', 20, 1)).toBe(0); // it still has it
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

  it('gives a sign for its process with each attempt, as long as it has a place', async () => {
    const sign = async (kind: string) => -Number(await client.zscore(QUEUE, `${kind} inbox:alive`));
    await hold('other');
    await turn('a', { entry: entryOf('a'), sign: UNVERIFIED });
    const first = await sign(UNVERIFIED);
    await turn('a', { entry: entryOf('a'), sign: LISTENING });
    expect(await sign(LISTENING)).toBeGreaterThan(first);
    expect(await sign(UNVERIFIED)).toBe(first);
    expect(await withdraw('a', entryOf('a'))).toBe(0);
    expect(await client.exists(QUEUE)).toBe(0);
  });

  it('removes old signs of other processes when it takes a place', async () => {
    await line(entryOf('first'));
    await signs({ [`${LISTENING} inbox:gone`]: 11_000, [`${UNVERIFIED} inbox:lately`]: 9_000 });
    await hold('other');
    await turn('a', { entry: entryOf('a') });
    expect(await client.zrange(QUEUE, '-inf', '(0', 'BYSCORE')).toEqual([
      `${LISTENING} inbox:alive`,
      'n inbox:alive',
      `${UNVERIFIED} inbox:lately`,
    ]);
  });
});

describe('a process that gives a lock back and asks for it again', () => {
  it('queues behind the waiting processes, and the first of them is told how far it may go', async () => {
    await hold('me');
    await client.zadd(QUEUE, 10, entryOf('a', 'grant', 'inbox:alive', 3));
    const [kind, gave] = await turn('again', { give: 'me', entry: entryOf('again'), number: 20 });
    expect([kind, gave]).toEqual(['refused', 1]);
    expect(await holder()).toBe('a');
    expect(await queue()).toEqual([entryOf('again')]);
    await told('a');
    const { fencingToken, lastToken, boundUs } = heard[0]!.grant!;
    expect([lastToken - fencingToken, boundUs]).toEqual([2, 20]);
    expect(await client.get(LOCK)).toBe(`a@${lastToken}+`);
  });

  it('gets new tokens for a lock that was handed over to it, as the first ones may be in use [G627]', async () => {
    await hold('me');
    await line(entryOf('a', 'grant', 'inbox:alive', 3));
    await release('me');
    await told('a');
    const { lastToken } = heard[0]!.grant!;
    const [kind, , , first] = await turn('a', {
      entry: entryOf('a', 'grant', 'inbox:alive', 3),
      count: 3,
      placed: 1,
    });
    expect(kind).toBe('granted');
    expect(Number(first)).toBeGreaterThan(lastToken);
  });
});
