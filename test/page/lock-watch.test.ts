import { EventEmitter } from 'node:events';
import type { Observable } from 'rxjs';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { LockWatch, LockWatches } from '../../lib/page/lock-watch.js';
import { pageController } from '../../lib/page/page.controller.js';
import type { PageResponse } from '../../lib/page/request.js';
import type { View } from '../../lib/page/view.js';
import type { Seen } from './viewer.js';

/** How long each listing takes, in milliseconds. */
let takesMs: number;
/** Why listing fails. */
let problem: Error | undefined;
/** The times of the listings, since the test began, and their patterns. */
let listings: [at: number, match: string | undefined][];
let startedAt: number;
let locks: LockService;
let watch: LockWatch;
beforeEach(() => {
  vi.useFakeTimers();
  takesMs = 10;
  problem = undefined;
  listings = [];
  startedAt = Date.now();
  locks = {
    labels: () => new Map(),
    ping: async () => ({ available: true, nodes: { voting: 1, of: 1 }, problems: [] }),
    list: async ({ match }: { match?: string }) => {
      listings.push([Date.now() - startedAt, match]);
      await new Promise((resolve) => setTimeout(resolve, takesMs));
      if (problem) throw problem;
      return { locks: [], complete: true, scanned: 0 };
    },
  } as unknown as LockService;
  watch = new LockWatch(locks, () => Date.now());
});
afterEach(() => {
  watch.end();
  vi.useRealTimers();
});

function look(match?: string) {
  const seen: Seen[] = [];
  const looking = watch.see(match).subscribe((view: View) => seen.push(JSON.parse(view.json(false)) as Seen));
  return { seen, leave: () => looking.unsubscribe(), looking };
}

it('all viewers share one listing a second, and a later viewer sees the last listing at once [G468]', async () => {
  const viewers = Array.from({ length: 50 }, () => look());
  await vi.advanceTimersByTimeAsync(3_500);
  expect(listings).toEqual([0, 1_010, 2_020, 3_030].map((at) => [at, undefined]));
  const late = look();
  expect(late.seen).toHaveLength(1);
  expect(viewers.every(({ seen }) => seen.length === 4)).toBe(true);
});

it('the store rests twenty times as long as a listing took, however often the page is loaded [G470]', async () => {
  takesMs = 300;
  for (let load = 0; load < 100; load++) {
    const viewer = look(load % 2 === 0 ? undefined : `*${load}*`);
    await vi.advanceTimersByTimeAsync(200);
    viewer.leave();
  }
  expect(listings.length).toBeGreaterThan(2);
  const pauses = listings.slice(1).map(([at], index) => at - listings[index]![0]);
  expect(Math.min(...pauses)).toBeGreaterThanOrEqual(21 * takesMs);
});

it('lists of different patterns are listed in turn', async () => {
  takesMs = 50;
  const viewers = ['a*', 'b*', 'c*'].map(look);
  await vi.advanceTimersByTimeAsync(9 * 1_050);
  expect(listings.map(([, match]) => match).join(' ')).toMatch(/^(a\* b\* c\* ?){2,}/);
  expect(viewers.every(({ seen }) => seen.length >= 2)).toBe(true);
});

it('nothing is listed while nobody looks, and a stream ends after five minutes, so that the guards check its viewer again', async () => {
  await vi.advanceTimersByTimeAsync(5_000);
  expect(listings).toEqual([]);
  const { looking } = look();
  await vi.advanceTimersByTimeAsync(299_000);
  expect(looking.closed).toBe(false);
  await vi.advanceTimersByTimeAsync(1_000);
  const { length } = listings;
  await vi.advanceTimersByTimeAsync(60_000);
  expect([looking.closed, listings.length, vi.getTimerCount()]).toEqual([true, length, 0]);
});

it('all pages of a service share one watch, and a viewer who comes while the application closes does not delay it more than others [G494]', () => {
  const watches = new LockWatches();
  expect(watches.of(locks)).toBe(watches.of(locks));
  watches.onModuleDestroy();
  for (const each of [locks, { ...locks } as LockService]) {
    expect(watches.of(each).see().subscribe().closed).toBe(true);
  }
});

const Page = pageController({ path: 'locks', guards: 'none' }) as new (...parts: [LockService, LockWatches]) => {
  events(response: PageResponse, canRelease: boolean): Observable<{ data: string }>;
};

it('a stream that ends cuts off a client that does not read', async () => {
  const watches = new LockWatches();
  const destroy = vi.fn<() => void>();
  const raw = Object.assign(new EventEmitter(), { destroy }) as never;
  new Page(locks, watches).events({ raw }, false).subscribe();
  await vi.advanceTimersByTimeAsync(10_000);
  watches.onModuleDestroy();
  expect(destroy).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(destroy).toHaveBeenCalledOnce();
});

it('a stream whose reader is slow skips views, and goes on with the newest one [G590]', async () => {
  const watches = new LockWatches();
  const raw = Object.assign(new EventEmitter(), { writableNeedDrain: false, destroy: () => {} });
  const sent: Seen[] = [];
  const leaving = new Page(locks, watches)
    .events({ raw } as never, false)
    .subscribe(({ data }) => void sent.push(JSON.parse(data) as Seen));
  await vi.advanceTimersByTimeAsync(100);
  expect(sent).toHaveLength(1);
  raw.writableNeedDrain = true; // the reader has not read it yet
  await vi.advanceTimersByTimeAsync(20_000);
  problem = new Error('the newest');
  await vi.advanceTimersByTimeAsync(5_000);
  expect(listings.length).toBeGreaterThan(10);
  expect(sent).toHaveLength(1);
  raw.writableNeedDrain = false;
  raw.emit('drain');
  expect(sent).toHaveLength(2);
  expect(sent[1]).toMatchObject({ problem: 'the newest' });
  raw.emit('drain'); // nothing is sent twice
  expect(sent).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(sent.length).toBeGreaterThan(2);
  leaving.unsubscribe();
  expect(raw.listenerCount('drain')).toBe(0);
  watches.onModuleDestroy();
});
