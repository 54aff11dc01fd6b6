import { Controller, Injectable, Post } from '@nestjs/common';
import { Locked, LockContendedError, LockKeyError, LockService } from 'nest-redis-lock';
import { beforeEach, describe, expect, it } from 'vitest';
import { post, sharedApp } from '../support/nest-app.js';

@Injectable()
class Transfers {
  ran: unknown[] = [];
  constructor(readonly locks: LockService) {}

  @Locked(['account:{1}', 'account:{0.id}', 'bank'])
  async transfer(from: { id: string }, to: string): Promise<boolean[]> {
    this.ran.push(to);
    return ['bank', `account:${from.id}`, `account:${to}`].map((key) => this.locks.current(key).isHeld);
  }

  @Locked(['account:{0}', 'bank'], { waitMs: 0, onContended: (id: string) => `${id} is busy` })
  async answering(id: string): Promise<string> {
    this.ran.push(id);
    return id;
  }

  @Locked(['account:{0}', 'bank'], { waitMs: 0 })
  async throwing(id: string): Promise<void> {
    this.ran.push(id);
  }

  @Locked((ids: string[]) => ids.map((id) => `account:${id}`))
  async all(ids: string[]): Promise<void> {
    this.ran.push(ids);
  }

  @Locked((..._ids: unknown[]) => _ids as string[])
  async any(..._ids: unknown[]): Promise<void> {
    this.ran.push('any');
  }

  @Locked(['single:{0}'])
  async single(_id: string): Promise<void> {
    this.locks.current();
  }

  @Locked(['a', 'b'])
  static(): Promise<boolean> {
    return this.locks.isLocked('a');
  }

  @Locked('held', { holdMs: 20_000 })
  async held(): Promise<void> {}
}

@Controller()
class Orders {
  ran = 0;
  constructor(readonly locks: LockService) {}

  @Post('of-request')
  @Locked(['order:{body.id}', 'user:{body.user}', 'orders'])
  async ofRequest(): Promise<boolean[]> {
    return ['orders', 'order:7', 'user:ada'].map((key) => this.locks.current(key).isHeld);
  }

  @Post('static')
  @Locked(['x', 'y'])
  async static(): Promise<void> {
    this.ran++;
  }
}

describe('@Locked with several keys', () => {
  const made = sharedApp({ providers: [Transfers], controllers: [Orders] });
  let transfers: Transfers;
  let orders: Orders;
  beforeEach(() => {
    transfers = made.app.get(Transfers);
    orders = made.app.get(Orders);
    transfers.ran = [];
    orders.ran = 0;
  });

  const anyLocked = async (...keys: string[]) =>
    (await Promise.all(keys.map((key) => made.locks.isLocked(key)))).includes(true);

  it('a method with several templates runs under the locks of all of them, which are released afterwards [G360]', async () => {
    expect(await transfers.transfer({ id: 'x' }, 'y')).toEqual([true, true, true]);
    expect(made.acquired.sort()).toEqual(['account:x', 'account:y', 'bank']);
    expect(await anyLocked('account:x', 'account:y', 'bank')).toBe(false);
  });

  it('a method does not run, and holds none of its keys, while one of them is held elsewhere [G361]', async () => {
    const bank = await made.locks.acquire('bank');
    const refusal = await transfers.throwing('x').catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(LockContendedError);
    expect(refusal).toMatchObject({ key: 'bank', message: expect.stringContaining('Transfers.throwing') });
    expect(await transfers.answering('x')).toBe('x is busy');
    expect([transfers.ran, await made.locks.isLocked('account:x')]).toEqual([[], false]);
    await bank.release();
    expect(await transfers.answering('x')).toBe('x');
  });

  it('a key function that returns an array locks all of its keys, each once [G362]', async () => {
    await transfers.all(['b', 'a', 'b']);
    expect(made.acquired.sort()).toEqual(['account:a', 'account:b']);
    expect(transfers.ran).toEqual([['b', 'a', 'b']]);
  });

  it.each<[what: string, keys: unknown[], problem: string]>([
    ['nothing', [], 'a set of locks has 1 to 100 keys: got 0.'],
    ['101 keys', Array.from({ length: 101 }, (_, index) => `key ${index}`), 'has 1 to 100 keys: got 101.'],
    ['an empty key', ['a', ''], "must be a non-empty string: got ''."],
    ['a number', ['a', 5], 'must be a non-empty string: got number.'],
    ['an array in it', ['a', ['b']], 'must be a non-empty string: got an array; for several keys use acquireAll.'],
  ])('a method whose key function returns an array with %s does not run [G363]', async (_, keys, problem) => {
    const refusal = await transfers.any(...keys).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(LockKeyError);
    expect(refusal).toMatchObject({ status: 500, message: expect.stringContaining(problem) });
    expect((refusal as Error).message).toMatch(/^@Locked on Transfers\.any: .* The method did not run\.$/);
    expect([transfers.ran, made.acquired]).toEqual([[], []]);
  });

  it('the keys of a set are named one by one inside, also where the array has a single one [G364]', async () => {
    await expect(transfers.single('x')).rejects.toThrow('current("single:x")');
    expect(made.acquired).toEqual(['single:x']);
  });

  it('an array of request templates is locked by the interceptor, with static texts among them [G365]', async () => {
    const answer = await post(`${made.url}/of-request`, { id: 7, user: 'ada' });
    expect(await answer.json()).toEqual([true, true, true]);
    expect(made.acquired.sort()).toEqual(['order:7', 'orders', 'user:ada']);
    expect(await anyLocked('order:7', 'orders', 'user:ada')).toBe(false);
  });

  it('static texts alone are locked by the interceptor of a handler, elsewhere at the call [G366]', async () => {
    expect(await transfers.static()).toBe(true);
    expect((await post(`${made.url}/static`, {})).status).toBe(201);
    expect(made.acquired.sort()).toEqual(['a', 'b', 'x', 'y']);
    expect(orders.ran).toBe(1);
  });

  it('a method with holdMs hands it on to its lock [G367]', async () => {
    await transfers.held();
    const released = made.events.find(({ type }) => type === 'released');
    expect(released).toMatchObject({ key: 'held', keptUntil: expect.any(Date) });
  });
});
