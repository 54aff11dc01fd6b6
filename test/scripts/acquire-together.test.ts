import { describe, expect, it } from 'vitest';
import { readHolderSet } from '../../lib/stores/redis/node/lock-keys.js';
import { until } from '../support/until.js';
import {
  CHANNEL,
  client,
  ACQUIRE_TOGETHER,
  EXTEND_TOGETHER,
  FENCE,
  FORCE_RELEASE,
  heard,
  KEYS,
  LOCK,
  onServer,
  QUEUE,
  queue,
  RELEASE,
  type Reply,
  run as runOn,
  type Script,
  told,
  TOKEN,
  TTL_MS,
  TURN,
  whileFull,
  withdraw,
} from './script-server.js';

onServer();

type Parts = [kind: string, gave: number, us: number, ...rest: (number | string)[]];
const run = (script: Script, ...args: (string | number)[]): Promise<Reply> => runOn(script, KEYS, ...args);

interface Ask {
  give?: string;
  ttlMs?: number;
  place?: string;
  number?: number;
  placed?: number;
  calls?: number;
  others?: string;
}
const ask = (owner: string, kind: (string | number)[], { give = '', ttlMs = TTL_MS, ...rest }: Ask = {}) => {
  const { place = '', number = '', placed = 0, calls = 1, others = '' } = rest;
  return run(
    ACQUIRE_TOGETHER,
    'h',
    give,
    owner,
    ttlMs,
    ...kind,
    place,
    number,
    placed,
    calls,
    others,
  ) as Promise<Parts>;
};
const permits = (owner: string, count: number, limit: number, options?: Ask) =>
  ask(owner, ['p', count, limit], options);
const share = (owner: string, options?: Ask) => ask(owner, ['s', 1, 0], options);
const give = (owner: string) => run(ACQUIRE_TOGETHER, 'h', owner, '', 0, 'p', 1, 1, '', '', 0, 0, '');
const extend = (owner: string, ttlMs = TTL_MS) => runOn(EXTEND_TOGETHER, [LOCK], ttlMs, owner);
const alone = (owner: string, entry = '', number: number | '' = '') =>
  run(TURN, 'h', '', `${owner}@`, TTL_MS, 1, entry, number, 0, 1) as Promise<Parts>;
const holders = async () => readHolderSet((await client.get(LOCK)) ?? '')?.members.map(({ owner }) => owner);
const read = (ticket: string) => `s ${CHANNEL} ${ticket}`;
const permit = (ticket: string, count: number, limit: number) => `p${count}/${limit} ${CHANNEL} ${ticket}`;
const exclusive = (ticket: string) => `g ${CHANNEL} ${ticket}~1`;

describe('a lock that several hold', () => {
  it('has one token for all who share it, and a larger one when it was free meanwhile [G851]', async () => {
    const [, , , first] = await share('a');
    expect((await share('b'))[3]).toBe(first);
    expect(await client.get(LOCK)).toMatch(new RegExp(`^~s@${first} \\d{13} 1 0 a \\d{13} 1 0 b$`));
    await give('a');
    expect((await share('c'))[3]).toBe(first);
    for (const owner of ['b', 'c']) expect(await give(owner)).toBe(1);
    expect(await client.exists(LOCK)).toBe(0);
    const [, , , , token] = await alone('x');
    expect(Number(token)).toBeGreaterThan(Number(first));
    await run(RELEASE, 'x@');
    expect(Number((await share('d'))[3])).toBeGreaterThan(Number(token));
  });

  it('counts permits against the smallest limit that a holder or the asking call names [G852]', async () => {
    await permits('a', 2, 3);
    expect((await permits('b', 2, 9))[0]).toBe('refused');
    expect((await permits('c', 1, 2))[0]).toBe('refused');
    const [kind, , , , , , smallest] = await permits('d', 1, 9);
    expect([kind, smallest]).toEqual(['granted', 3]);
    const refusal = await permits('e', 1, 9);
    expect([refusal[0], refusal[7], await holders()]).toEqual(['refused', 3, ['a', 'd']]);
  });

  it('lasts as long as any of them holds it: an extension by another does not shorten it [G853]', async () => {
    await share('long', { ttlMs: 60_000 });
    await share('short', { ttlMs: 20_000 });
    expect(await client.pttl(LOCK)).toBeGreaterThan(50_000);
    expect(await extend('short', 10_000)).toBe(1);
    expect(await client.pttl(LOCK)).toBeGreaterThan(50_000);
    await give('long');
    expect(await client.pttl(LOCK)).toBeLessThanOrEqual(10_000);
  });

  it('reports to an extension that its time has passed, that others hold the lock, or that nobody does', async () => {
    const past = Date.now() - 1_000;
    await client.set(LOCK, `~p ${past} 1 3 late ${Date.now() + TTL_MS} 1 3 a`, 'PX', TTL_MS);
    for (const _ of ['before it is written', 'after it is']) {
      expect([await extend('late'), await extend('stranger'), await extend('a')]).toEqual([0, -1, 1]);
    }
    expect(await give('late')).toBe(-1);
    await client.del(LOCK);
    expect(await extend('a')).toBe(0);
    await client.set(LOCK, `a@${TOKEN}`);
    expect(await extend('a')).toBe(-1);
    await client.del(LOCK);
    await client.lpush(LOCK, 'by hand');
    expect(await extend('a')).toBe(-1);
  });
});

describe('the queue of a lock that several hold', () => {
  it('lets nobody past its head, which fits later, whatever its mode [G854]', async () => {
    await share('a');
    await alone('x', exclusive('x'), 10);
    expect((await share('b', { place: read('b'), number: 20 }))[0]).toBe('refused');
    expect(await queue()).toEqual([exclusive('x'), read('b')]);
    expect(await holders()).toEqual(['a']);
    await give('a');
    await told('x');
    expect(await run(RELEASE, 'x@')).toBe(1);
    await told('x', 'b');
    expect(await holders()).toEqual(['b']);
  });

  it('is served as far as its places fit together, and all of them get the same token and the first remaining place', async () => {
    await client.set(LOCK, `x@${TOKEN}+`, 'PX', TTL_MS);
    const entries = [read('a'), read('b'), exclusive('y'), read('c')];
    for (const [at, entry] of entries.entries()) await client.zadd(QUEUE, 10 * (at + 1), entry);
    expect(await run(RELEASE, 'x@')).toBe(1);
    expect(await holders()).toEqual(['a', 'b']);
    await told('a', 'b');
    const [first, second] = heard.map(({ grant }) => grant!);
    expect(first).toEqual(second);
    expect([first!.boundUs, first!.fencingToken]).toEqual([
      30,
      Number(readHolderSet((await client.get(LOCK))!)!.fencingToken),
    ]);
    expect(await queue()).toEqual([exclusive('y'), read('c')]);
  });

  it('lets in the places behind one that is given up [G855]', async () => {
    await share('a');
    await alone('x', exclusive('x'), 10);
    await share('b', { place: read('b'), number: 20 });
    expect(await withdraw('x', exclusive('x'))).toBe(0);
    expect(await holders()).toEqual(['a', 'b']);
    await told('b');
    expect(await withdraw('b', read('b'))).toBe(1);
    expect(await holders()).toEqual(['a']);
  });

  it('passes over processes that are gone, and entries that it does not know, which keep their places', async () => {
    await permits('a', 1, 3);
    const unknown = ['s+x inbox:alive flagged', `p3/2 ${CHANNEL} too-many`, `s ${CHANNEL} two words`];
    for (const [at, entry] of [...unknown, 'p1/3 inbox:dead dead', permit('b', 1, 3), permit('c', 2, 3)].entries())
      await client.zadd(QUEUE, at + 1, entry);
    expect((await permits('d', 1, 3, { place: permit('d', 1, 3), number: 99 }))[0]).toBe('refused');
    expect(await holders()).toEqual(['a', 'b']);
    expect(await queue()).toEqual([...unknown, permit('c', 2, 3), permit('d', 1, 3)]);
  });

  it.each([
    ['shares it', read('b'), () => share('b', { place: read('b'), number: 20 })],
    ['has permits', permit('b', 1, 2), () => permits('b', 1, 2, { place: permit('b', 1, 2), number: 20 })],
  ])(
    'lets each place that %s with the holders past a head that does not fit and whose process is gone',
    async (_, entry, joins) => {
      await (entry.startsWith('s') ? share('a') : permits('a', 1, 2));
      const gone = 'inbox:gone';
      await client.zadd(QUEUE, 10, `g ${gone} x~1`, 11, `p2/2 ${gone} y`);
      await client.zadd(QUEUE, -Date.now() * 1_000, `h ${gone}`); // its sign is new
      expect((await joins())[0]).toBe('granted');
      expect(await holders()).toEqual(['a', 'b']);
      expect(await queue()).toEqual([]);
    },
  );

  it('gets what is taken by force, from all or from one, and each former holder is notified [G856]', async () => {
    await permits('alive/1', 1, 2, { others: 'alive/2' });
    await permits('w', 1, 2, { place: permit('w', 1, 2), number: 1 });
    expect(await run(FORCE_RELEASE, 'inbox:', 'k', 'alive/2')).toEqual(['together', 'alive/2']);
    expect(await holders()).toEqual(['alive/1', 'w']);
    expect(await run(FORCE_RELEASE, 'inbox:', 'k', 'nobody')).toBe(0);
    expect(await run(FORCE_RELEASE, 'inbox:', 'k', '')).toEqual(['together', 'alive/1', 'w']);
    expect(await client.exists(LOCK, QUEUE)).toBe(0);
    await until(() => heard.length >= 3, { what: 'it is notified' });
    expect(heard.map(({ ticket, takenKey }) => [ticket, takenKey])).toEqual([
      ['alive/2', 'k'],
      ['w', undefined],
      ['alive/1', 'k'],
    ]);
  });
});

describe('a call for a lock together with others, when something is wrong', () => {
  it('learns what is wrong with the counter, and has only given back what it had', async () => {
    await share('a');
    await client.set(FENCE, '9e18');
    expect(await share('b', { give: 'a' })).toEqual(['failed', 1, expect.stringContaining('out of range')]);
    expect(await client.exists(LOCK)).toBe(0);
    expect((await permits('p', 1, 1))[0]).toBe('granted'); // they have no token
  });

  it('is refused where another program has written something else than a lock', async () => {
    await client.lpush(LOCK, 'by hand');
    await expect(share('a')).rejects.toThrow('WRONGTYPE');
    expect(await give('a')).toBe(-1);
    await client.del(LOCK);
    for (const value of ['~p', '~p soon', '~s@12 1 1 0 a', `~x ${Date.now() + TTL_MS} 1 1 a`]) {
      await client.set(LOCK, value);
      expect((await share('a'))[4]).toBe(value);
      expect(await give('a')).toBe(-1);
      expect(await client.get(LOCK)).toBe(value);
    }
  });

  it('is released, and the reply says so, where the server is full and cannot write the next hold', async () => {
    await permits('a', 1, 1);
    const [kind, gave] = await whileFull(() => permits('b', 1, 1, { give: 'a' }));
    expect([kind, gave]).toEqual(['failed', 1]);
    expect(await client.exists(LOCK)).toBe(0);
  });

  it.each([
    ['shared', share],
    ['of permits', (owner: string) => permits(owner, 1, 2)],
  ])('is extended and leaves while the server is full, where the lock is %s', async (_, join) => {
    for (const owner of ['a', 'b']) await join(owner);
    await client.pexpire(LOCK, 1_000);
    await whileFull(async () => {
      for (const owner of ['a', 'b']) expect(await extend(owner, 2 * TTL_MS)).toBe(1);
      expect(await client.pttl(LOCK)).toBeGreaterThan(TTL_MS);
      expect(await give('a')).toBe(1);
      expect(await holders()).toEqual(['b']);
      expect(await give('b')).toBe(1);
      expect(await client.exists(LOCK)).toBe(0);
    });
  });
});
