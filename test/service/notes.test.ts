import { hostname } from 'node:os';
import { expect, it } from 'vitest';
import type { Lock, LockContendedError, LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { proxyTo } from '../support/stage.js';
import { membersOn } from '../support/stored.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, ownerOf, untilQueued } = await sceneOfFile();
const NOTE = 'Anna Grün, editing “Invoice 7” @ ~1/2 🧾';
const HOLDER = { host: hostname(), pid: process.pid };
/** How much longer the longest host name and process id are than the ones of this machine. */
const OTHERS_LONGER = 64 + 10 - hostname().length - String(process.pid).length;
/** The space that MySQL has for an owner value, in characters. */
const ROOM = 512;

const noteOf = async (locks: LockService, key: string) => (await locks.inspect(key))?.holder.note;
const refused = (call: Promise<unknown>) => call.catch((error: unknown) => error as LockContendedError);

it('inspect, list and the refusal of a waiting call show the note of a call, in its process and elsewhere [G1125]', async () => {
  const [locks, others] = [await open(), await open()];
  const { owner } = await locks.acquire('shown', { note: NOTE });
  const holder = { owner, ...HOLDER, note: NOTE };
  expect((await others.inspect('shown'))?.holder).toEqual(holder);
  expect((await others.list()).locks).toMatchObject([{ key: 'shown', holder }]);
  for (const asking of [locks, others]) {
    const error = await refused(asking.acquire('shown', { waitMs: 0 }));
    expect(error).toMatchObject({ code: 'LOCK_CONTENDED', holder });
    expect(String(error)).toContain(`is held by pid ${process.pid} on ${hostname()} (note "${NOTE}")`);
  }
  const labels = locks.stats().map(({ label }) => label);
  expect(labels).toEqual(['_key']);
});

it('a call without a note has the owner value that it always had [G1126]', async () => {
  const locks = await open();
  const lock = await locks.acquire('plain');
  expect(lock.owner).toMatch(/^[\w.-]+\/\d+\/[\w-]{12}\/[0-9a-z]+$/);
  expect((await locks.inspect('plain'))?.holder).toEqual({ owner: lock.owner, ...HOLDER });
});

it('each lock shows the note of its own call, also where calls of one process wait for each other [G1127]', async () => {
  const [locks, others] = [await open(), await open()];
  const held = await others.acquire('in turn');
  const seen: unknown[] = [];
  const notes = ['one', 'one', 'two', undefined, 'three'];
  const calls = notes.map((note) =>
    locks.withLock('in turn', { note }, async () => seen.push(await noteOf(others, 'in turn'))),
  );
  await untilQueued('in turn');
  expect((await others.inspect('in turn'))?.waitingProcesses).toMatchObject([{ ...HOLDER, note: 'one' }]);
  await held.release();
  await Promise.all(calls);
  expect(seen).toEqual(notes);
});

it('a lock that was asked for by a call which gives up is not shown with its note [G1130]', async () => {
  const [locks, others] = [await open(), await open()];
  const held = await others.acquire('given up');
  const first = refused(locks.acquire('given up', { note: 'first', waitMs: 50 }));
  const second = locks.acquire('given up', { note: 'second' });
  await first;
  await until(async () => (await others.inspect('given up'))?.waitingProcesses?.[0]?.note === 'second', {
    what: 'the call behind it waits under its own note',
  });
  await held.release();
  await second;
  expect(await noteOf(others, 'given up')).toBe('second');
});

it('a lock that was handed over, or granted, for a call that has given up meanwhile is not shown with its note [G1132]', async () => {
  const [others, proxy] = [await open(), await proxyTo(server)];
  const locks = await openLocks({ redis: proxy.url });
  await locks.withLock('granted', () => {}); // it is connected from now on
  proxy.roundTripMs = 100;
  const gone = new AbortController();
  const first = refused(locks.acquire('granted', { note: 'first', signal: gone.signal }));
  const second = locks.acquire('granted', { note: 'second' });
  gone.abort();
  await Promise.all([first, second]);
  expect(await noteOf(others, 'granted')).toBe('second');
  const held = await others.acquire('handed over');
  const last = locks.acquire('handed over', { note: 'first', waitMs: 500 }).catch(() => {});
  const next = locks.acquire('handed over', { note: 'second' });
  await untilQueued('handed over');
  await last;
  await held.release(); // before its process has asked again
  await next;
  expect(await noteOf(others, 'handed over')).toBe('second');
});

it('of several holders each shows its own note [G1131]', async () => {
  const locks = await open();
  const notes = ['one', 'one', 'two', undefined];
  const all = { waitMs: 5_000, limit: 4 } as const;
  await Promise.all(notes.map((note) => locks.acquirePermits('permits', { ...all, note })));
  await Promise.all(notes.map((note) => locks.acquire('readers', { mode: 'shared', note })));
  for (const key of ['permits', 'readers']) {
    const shown = (await locks.inspect(key))!.holders.map(({ holder }) => holder.note);
    expect(new Set(shown)).toEqual(new Set(notes));
  }
  expect(await membersOn(server, 'permits')).toHaveLength(4);
  expect(await membersOn(server, 'readers')).toHaveLength(3); // calls with one note share a lease
});

it('a note goes with its lock to a parcel, which can have another one, and to the calls that adopt or share it [G1128]', async () => {
  const [locks, others] = [await open(), await open()];
  const kept = await (await locks.acquire('kept', { note: NOTE })).detach({ ttlMs: 60_000 });
  expect((await others.inspect('kept'))?.holder).toMatchObject({ detached: true, note: NOTE });
  expect(String(await refused(others.acquire('kept', { waitMs: 0 })))).toContain(`(note "${NOTE}")`);
  await others.adopt(kept);
  expect((await locks.inspect('kept'))?.holder).toMatchObject({ ...HOLDER, note: NOTE });
  const named = await (await locks.acquire('named')).detach({ ttlMs: 60_000, note: '界'.repeat(100) });
  expect((await others.inspect('named'))?.holder).toMatchObject({ detached: true, note: '界'.repeat(100) });
  expect(named.owner.length + OTHERS_LONGER).toBeLessThan(ROOM);
  const shared = await (await locks.acquire('shared', { note: NOTE })).downgrade();
  expect([shared.mode, await noteOf(others, 'shared')]).toEqual(['shared', NOTE]);
});

it('a holder with a note that listens learns at once that its lock was taken from it [G1129]', async () => {
  const [locks, others] = [await open(), await open()];
  const before = await others.acquire('forced');
  const acquiring: Promise<Lock> = locks.acquire('forced', { note: NOTE }); // its process listens from now on
  await untilQueued('forced');
  await before.release();
  const held = await acquiring;
  expect(await ownerOf('forced')).toBe(held.owner);
  const { digest } = (await others.inspect('forced'))!;
  expect(await others.forceRelease('forced', { owner: digest })).toBe(true);
  await until(() => held.signal.aborted, { what: 'its signal aborts', timeoutMs: 5_000 }); // its next extension is in 10 s
  expect(held.signal.reason).toMatchObject({ reason: 'forced' });
});

it.each(['', 'a'.repeat(101), 'two\nlines', 'hidden\u200b', '\ud800', 7])('the note %j is refused', async (note) => {
  const locks = await open();
  const message = 'note must be a string of 1 to 100 printable characters: got ';
  await expect(locks.acquire('refused', { note } as never)).rejects.toThrow(message);
  const lock = await locks.acquire('refused');
  await expect(lock.detach({ ttlMs: 60_000, note } as never)).rejects.toThrow(message);
  expect(lock.isHeld).toBe(true);
});
