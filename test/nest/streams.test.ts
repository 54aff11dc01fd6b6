import { Injectable } from '@nestjs/common';
import { Locked, LockContendedError, LockLostError, LockService } from 'nest-redis-lock';
import { EMPTY, firstValueFrom, lastValueFrom, NEVER, Observable, of, Subject, take, throwError, toArray } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

@Injectable()
class Feed {
  calls = 0;
  readonly ticks = new Subject<number>();
  constructor(readonly locks: LockService) {}

  @Locked('feed:{0}')
  watch(_topic: string): Observable<number> {
    this.calls++;
    return this.ticks;
  }

  @Locked('feed:a')
  fails(): Observable<never> {
    return throwError(() => new RangeError('of the stream'));
  }

  @Locked('feed:a')
  throws(): Observable<never> {
    throw new RangeError('of the method');
  }

  @Locked('feed:a')
  underLock(): Observable<string> {
    return new Observable((subscriber) => {
      subscriber.next(this.locks.current().key);
      subscriber.complete();
    });
  }

  @Locked('feed:a')
  endless(): Observable<number> {
    return new Observable((subscriber) => {
      for (let n = 0; !subscriber.closed; n++) {
        if (n === 1_000) throw new Error('nobody stopped the loop');
        subscriber.next(n);
      }
    });
  }

  @Locked('feed:a', { waitMs: 0 })
  impatient(): Observable<string> {
    return of('ran');
  }

  @Locked('feed:a', { waitMs: 0, onContended: 'skip' })
  skipping(): Observable<string> {
    return of('ran');
  }

  @Locked('feed:{0}', { waitMs: 0, onContended: async (topic: string) => `${topic} is busy` })
  answering(_topic: string): Observable<string> {
    return of('ran');
  }

  @Locked('feed:a')
  undeclared(): Observable<number> {
    return 5 as unknown as Observable<number>;
  }
}

const makeFeed = async () => {
  const test = await makeApp({ providers: [Feed] }, { memory: true, waitMs: 60_000 });
  const { locks } = test;
  return {
    ...test,
    feed: test.app.get(Feed),
    free: () => until(async () => !(await locks.isLocked('feed:a')), { what: 'the lock is free' }),
    held: () => until(() => locks.isLocked('feed:a'), { what: 'the lock is held' }),
  };
};

it('does nothing before it is subscribed to', async () => {
  const { feed, acquired, locks } = await makeFeed();
  const stream = feed.watch('a');
  await locks.isLocked('feed:a');
  expect([feed.calls, acquired]).toEqual([0, []]);
  stream.subscribe().unsubscribe();
});

describe('an Observable holds the lock from the subscription until', () => {
  it('it completes', async () => {
    const { feed, locks, held } = await makeFeed();
    const values: number[] = [];
    const completed = new Promise<void>((complete) =>
      feed.watch('a').subscribe({ next: (value) => values.push(value), complete }),
    );
    await until(() => feed.ticks.observed, { what: 'the stream runs' });
    feed.ticks.next(1);
    feed.ticks.next(2);
    expect(values).toEqual([1, 2]);
    await held();
    feed.ticks.complete();
    await completed;
    expect(await locks.isLocked('feed:a')).toBe(false);
  });

  it('it fails, with the error it fails with', async () => {
    const { feed, locks } = await makeFeed();
    await expect(lastValueFrom(feed.fails())).rejects.toThrow(new RangeError('of the stream'));
    await expect(lastValueFrom(feed.throws())).rejects.toThrow(new RangeError('of the method'));
    expect(await locks.isLocked('feed:a')).toBe(false);
  });

  it('it is unsubscribed from, which ends the work', async () => {
    const { feed, held, free } = await makeFeed();
    const subscription = feed.watch('a').subscribe();
    await until(() => feed.ticks.observed, { what: 'the stream runs' });
    await held();
    subscription.unsubscribe();
    expect(feed.ticks.observed).toBe(false);
    await free();
  });
});

it('acquires anew for each subscription, one after the other', async () => {
  const { feed, acquired } = await makeFeed();
  const stream = feed.underLock();
  const both = [lastValueFrom(stream), lastValueFrom(stream)];
  expect(await Promise.all(both)).toEqual(['feed:a', 'feed:a']);
  expect(acquired).toEqual(['feed:a', 'feed:a']);
});

it('stops a synchronous source whose listener has enough', async () => {
  const { feed, free } = await makeFeed();
  expect(await lastValueFrom(feed.endless().pipe(take(3), toArray()))).toEqual([0, 1, 2]);
  await free();
});

it('gives up waiting, and never runs, when it is unsubscribed from before', async () => {
  const { feed, locks } = await makeFeed();
  const held = await locks.acquire('feed:a');
  const subscription = feed.watch('a').subscribe();
  await until(async () => (await locks.inspect('feed:a'))?.waiters === 1, { what: 'it waits' });
  subscription.unsubscribe();
  await until(async () => (await locks.inspect('feed:a'))?.waiters === 0, { what: 'it waits no more' });
  await held.release();
  expect([feed.calls, await locks.isLocked('feed:a')]).toEqual([0, false]);
});

it('does not run when it is unsubscribed from as the lock is granted', async () => {
  const { feed, locks, free } = await makeFeed();
  const subscription = feed.watch('a').subscribe();
  locks.events$.subscribe((event) => event.type === 'acquired' && subscription.unsubscribe());
  await until(() => subscription.closed, { what: 'the lock was granted' });
  await free();
  expect(feed.calls).toBe(0);
});

describe('when somebody else holds the lock, an Observable', () => {
  it('fails', async () => {
    const { feed, locks } = await makeFeed();
    await using _held = await locks.acquire('feed:a');
    await expect(lastValueFrom(feed.impatient())).rejects.toBeInstanceOf(LockContendedError);
  });

  it('is empty with onContended skip', async () => {
    const { feed, locks } = await makeFeed();
    await using _held = await locks.acquire('feed:a');
    expect(await lastValueFrom(feed.skipping().pipe(toArray()))).toEqual([]);
  });

  it('emits what onContended returns', async () => {
    const { feed, locks } = await makeFeed();
    await using _held = await locks.acquire('feed:a');
    expect(await lastValueFrom(feed.answering('a').pipe(toArray()))).toEqual(['a is busy']);
    expect(await firstValueFrom(feed.answering('b'))).toBe('ran');
  });
});

it('fails at its end when the lock was lost meanwhile', async () => {
  const { feed, locks } = await makeFeed();
  const seen: number[] = [];
  const failed = new Promise<unknown>((error) =>
    feed.watch('a').subscribe({ next: (value) => seen.push(value), error }),
  );
  await until(() => feed.ticks.observed, { what: 'the stream runs' });
  await locks.forceRelease('feed:a');
  feed.ticks.next(1);
  feed.ticks.complete();
  expect(await failed).toBeInstanceOf(LockLostError);
  expect(await failed).toMatchObject({ reason: 'forced', outcome: { status: 'fulfilled' } });
  expect(seen).toEqual([1]);
});

it('emits the value of a method that is declared to return an Observable and does not', async () => {
  const { feed, locks } = await makeFeed();
  expect(await lastValueFrom(feed.undeclared())).toBe(5);
  expect(await locks.isLocked('feed:a')).toBe(false);
});

it('fails without running on an object made with new', async () => {
  const { locks } = await makeFeed();
  const feed = new Feed(locks);
  await expect(lastValueFrom(feed.watch('a'))).rejects.toThrow('Feed has no LockService');
  expect(feed.calls).toBe(0);
});

it('takes Subjects and other kinds of Observable for what they are', async () => {
  class Kinds {
    @Locked('kinds')
    subject(): Subject<string> {
      return of('x') as Subject<string>;
    }
    @Locked('kinds')
    empty(): Observable<never> {
      return EMPTY;
    }
    @Locked('kinds')
    never(): Observable<never> {
      return NEVER;
    }
  }
  const { app, locks } = await makeApp({ providers: [Kinds] });
  const kinds = app.get(Kinds);
  expect(await lastValueFrom(kinds.subject())).toBe('x');
  expect(await lastValueFrom(kinds.empty(), { defaultValue: 'empty' })).toBe('empty');
  const subscription = kinds.never().subscribe();
  await until(() => locks.isLocked('kinds'), { what: 'the lock is held' });
  subscription.unsubscribe();
  await until(async () => !(await locks.isLocked('kinds')), { what: 'the lock is free' });
});

it('a stream whose key is none is refused only when the event loop has run', async () => {
  const { app } = await makeApp({ providers: [Feed] });
  const feed = app.get(Feed);
  let hasRun = false;
  let calls = 0;
  setImmediate(() => (hasRun = true));
  while (!hasRun && calls < 20_000) {
    calls++;
    await expect(firstValueFrom(feed.watch(''))).rejects.toMatchObject({ code: 'LOCK_KEY' });
  }
  expect(calls).toBe(1);
});
