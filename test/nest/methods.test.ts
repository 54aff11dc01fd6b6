import { Controller, Get, Injectable } from '@nestjs/common';
import { Locked, LockOptionsError, LockService } from 'nest-redis-lock';
import { lastValueFrom, Observable, of, toArray } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { makeApp } from '../support/nest-app.js';

const whisper = Symbol('whisper');

class Refused extends Error {}

@Injectable()
class Orders {
  readonly name = 'orders';
  running = 0;
  most = 0;
  constructor(readonly locks: LockService) {}

  @Locked('{0}')
  async add(key: string, ...numbers: number[]): Promise<string> {
    return [this.name, key, numbers.reduce((sum, n) => sum + n, 0)].join();
  }

  @Locked('{0}')
  async count(_key: string, gate: Gate): Promise<void> {
    this.most = Math.max(this.most, ++this.running);
    await gate.opened;
    this.running--;
  }

  @Locked('x')
  async fail(): Promise<void> {
    throw new Refused('with a cause', { cause: 'of its own' });
  }

  @Locked('x')
  throwsAtOnce(): Promise<void> {
    throw new Refused('at once');
  }

  @Locked('x')
  thenable(): Promise<string> {
    return { then: (resolve: (value: string) => void) => resolve('later') } as Promise<string>;
  }

  callPrivate(): Promise<string> {
    return this.secret('a');
  }

  @Locked('private:{0}')
  private async secret(part: string): Promise<string> {
    return `${part} ${this.locks.current().key}`;
  }

  @Locked('symbol')
  async [whisper](): Promise<string> {
    return this.locks.current().key;
  }
}

const orders = async () => {
  const test = await makeApp({ providers: [Orders] });
  return { ...test, orders: test.app.get(Orders) };
};

describe('does not run, and says why,', () => {
  it('a locked method of an object made with new does not run, and says why [G187]', async () => {
    const { locks } = await orders();
    const service = new Orders(locks);
    await expect(service.count('x', new Gate())).rejects.toThrow(
      'Orders has no LockService: the instance was not made by Nest, or the method was called without its object.',
    );
    await expect(service.count('x', new Gate())).rejects.toBeInstanceOf(LockOptionsError);
    expect(service.most).toBe(0);
  });
});

describe('a method that is not async', () => {
  /** As in JavaScript, or with `any`: elsewhere these methods do not compile. */
  const untyped = (value: unknown) => value as Promise<unknown>;

  @Controller()
  class Sync {
    readonly ran: unknown[] = [];
    constructor(readonly locks: LockService) {}

    @Locked('{0}')
    value(_key: string): Promise<unknown> {
      return untyped(this.ran.push(this.locks.current().key));
    }

    @Locked('x')
    nothing(): Promise<unknown> {
      return untyped(undefined);
    }

    @Locked('x')
    streamOfPromise(): Observable<unknown> {
      return Promise.resolve(of(1, 2)) as unknown as Observable<unknown>;
    }

    @Get()
    @Locked('handler')
    handler(): Promise<unknown> {
      return untyped(`${this.locks.isLocked('handler') instanceof Promise}`);
    }
  }

  const warning = (method: string) =>
    `warn Sync.${method} is @Locked and returned a plain value. Its callers get a Promise: make the method async.`;

  it('a locked method that is not async runs under its lock, and its callers get a Promise of its value, with one warning [G1032]', async () => {
    const { app, locks, log } = await makeApp({ controllers: [Sync] });
    const sync = app.get(Sync);
    const first = sync.value('a');
    expect(first).toBeInstanceOf(Promise);
    expect([await first, await sync.value('b')]).toEqual([1, 2]);
    expect(sync.ran).toEqual(['a', 'b']);
    expect(log.lines).toEqual([warning('value')]);
    expect(await sync.nothing()).toBe(undefined);
    expect(log.lines).toEqual([warning('value'), warning('nothing')]);
    expect(await locks.isLocked('a')).toBe(false);
  });

  it('emits the values of a stream that is promised where it was declared', async () => {
    const { app, locks } = await makeApp({ controllers: [Sync] });
    expect(await lastValueFrom(app.get(Sync).streamOfPromise().pipe(toArray()))).toEqual([1, 2]);
    expect(await locks.isLocked('x')).toBe(false);
  });
});

describe('a method that returns what would run without the lock', () => {
  it.each([
    ['a generator', function* () {}, 'is @Locked and returned a generator, whose code would run without the lock'],
    [
      'an async generator',
      async function* () {},
      'is @Locked and returned a generator, whose code would run without the',
    ],
    ['an Observable', () => of(1), 'returned an Observable, but is not declared to'],
    ['a Promise of an Observable', async () => of(1), 'returned a Promise of an Observable, but is not declared to'],
  ] as [string, () => unknown, string][])('is refused at the call, if it returns %s', async (_what, body, problem) => {
    class Loose {
      @Locked('x')
      run(): Promise<unknown> {
        return body() as Promise<unknown>;
      }
    }
    const { app, locks } = await makeApp({ providers: [Loose] });
    await expect(app.get(Loose).run()).rejects.toThrow(problem);
    await expect(app.get(Loose).run()).rejects.toBeInstanceOf(LockOptionsError);
    expect(await locks.isLocked('x')).toBe(false);
  });
});
