import { Injectable } from '@nestjs/common';
import { Locked, LockContendedError, LockService } from 'nest-redis-lock';
import { lastValueFrom, Observable, of, Subject, take, throwError, toArray } from 'rxjs';
import { expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

@Injectable()
class Feed {
  calls = 0;
  readonly ticks = new Subject<number>();
  constructor(readonly locks: LockService) {}

  @Locked('feed')
  watch(): Observable<number> {
    this.calls++;
    return this.ticks;
  }

  @Locked('feed')
  fails(): Observable<never> {
    return throwError(() => new RangeError('of the stream'));
  }

  @Locked('feed')
  throws(): Observable<never> {
    throw new RangeError('of the method');
  }

  @Locked('feed')
  endless(): Observable<number> {
    return new Observable((subscriber) => {
      for (let n = 0; !subscriber.closed; n++) {
        if (n === 1_000) throw new Error('nobody stopped the loop');
        subscriber.next(n);
      }
    });
  }

  @Locked('feed', { waitMs: 0 })
  impatient(): Observable<string> {
    return of(this.locks.current().key);
  }

  @Locked('feed', { waitMs: 0, onContended: 'skip' })
  skipping(): Observable<string> {
    return of('ran');
  }

  @Locked('feed', { waitMs: 0, onContended: async (topic: string) => `${topic} is busy` })
  answering(_topic: string): Observable<string> {
    return of('ran');
  }

  @Locked('feed')
  undeclared(): Observable<number> {
    return 5 as unknown as Observable<number>;
  }
}

async function start() {
  const { app, locks, acquired } = await makeApp({ providers: [Feed] }, { memory: true, waitMs: 60_000 });
  const feed = app.get(Feed);
  const waiters = (count: number) =>
    until(async () => (await locks.inspect('feed'))?.waiters === count, { what: `${count} wait` });
  const runs = () => until(() => feed.ticks.observed, { what: 'the stream runs' });
  const free = () => until(async () => !(await locks.isLocked('feed')), { what: 'the lock is free' });
  return { feed, locks, acquired, waiters, runs, free };
}

it('a stream holds its lock from each subscription until it completes, fails or is unsubscribed from', async () => {
  const { feed, locks, acquired, runs, free } = await start();
  const stream = feed.watch();
  await locks.isLocked('feed');
  expect([feed.calls, acquired]).toEqual([0, []]);
  const values = lastValueFrom(stream.pipe(toArray()));
  await runs();
  feed.ticks.next(1);
  expect(await locks.isLocked('feed')).toBe(true);
  feed.ticks.next(2);
  feed.ticks.complete();
  expect(await values).toEqual([1, 2]);
  expect(await locks.isLocked('feed')).toBe(false);
  await expect(lastValueFrom(feed.fails())).rejects.toThrow(new RangeError('of the stream'));
  await expect(lastValueFrom(feed.throws())).rejects.toThrow(new RangeError('of the method'));
  expect(await lastValueFrom(feed.undeclared())).toBe(5);
  const twice = feed.impatient();
  for (const _ of [1, 2]) expect(await lastValueFrom(twice)).toBe('feed');
  expect(await lastValueFrom(feed.endless().pipe(take(3), toArray()))).toEqual([0, 1, 2]);
  await free();
  expect(acquired).toHaveLength(7);

  const later = await start();
  const subscription = later.feed.watch().subscribe();
  await later.runs();
  subscription.unsubscribe();
  expect(later.feed.ticks.observed).toBe(false);
  await later.free();
});

it('a stream that is unsubscribed from while it waits, or when its lock is granted, never runs', async () => {
  const { feed, locks, waiters, free } = await start();
  const held = await locks.acquire('feed');
  const waiting = feed.watch().subscribe();
  await waiters(1);
  waiting.unsubscribe();
  await waiters(0);
  await held.release();
  const granted = feed.watch().subscribe();
  locks.events$.subscribe((event) => event.type === 'acquired' && granted.unsubscribe());
  await until(() => granted.closed, { what: 'the lock was granted' });
  await free();
  expect(feed.calls).toBe(0);
});

it('a stream whose lock is held elsewhere fails, is empty with "skip", or emits what onContended returns', async () => {
  const { feed, locks } = await start();
  await using _held = await locks.acquire('feed');
  await expect(lastValueFrom(feed.impatient())).rejects.toBeInstanceOf(LockContendedError);
  expect(await lastValueFrom(feed.skipping().pipe(toArray()))).toEqual([]);
  expect(await lastValueFrom(feed.answering('tea').pipe(toArray()))).toEqual(['tea is busy']);
});
