import { Injectable } from '@nestjs/common';
import { Locked, LockContendedError, LockLostError, LockService } from 'nest-redis-lock';
import { expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';
import { whenAborted } from '../support/until.js';

@Injectable()
class Orders {
  ran = 0;
  constructor(readonly locks: LockService) {}

  @Locked('order', { waitMs: 0 })
  async throwing(): Promise<string> {
    this.ran++;
    return 'ran';
  }

  @Locked('order', { waitMs: 0, onContended: 'skip' })
  async skipping(): Promise<string | undefined> {
    this.ran++;
    return 'ran';
  }

  @Locked('order', { waitMs: 0, onContended: async (id: string, amount: number) => `${id} for ${amount} is busy` })
  async answering(_id: string, _amount: number): Promise<string> {
    this.ran++;
    return 'ran';
  }

  @Locked('order', {
    waitMs: 0,
    onContended: () => {
      throw new RangeError('of onContended');
    },
  })
  async failing(): Promise<string> {
    return 'ran';
  }

  @Locked('outer', { onContended: 'skip' })
  async outer(): Promise<string | undefined> {
    return this.throwing();
  }

  @Locked('outer', { onContended: () => 'swallowed' })
  async outerAnswering(): Promise<string> {
    return this.throwing();
  }

  @Locked('lost')
  async loses(error?: Error): Promise<string> {
    await this.locks.forceRelease('lost');
    if (error) throw error;
    return 'written';
  }

  @Locked('hangs', { maxHoldMs: 50 })
  async hangs(): Promise<string> {
    const { signal } = this.locks.current();
    await whenAborted(signal);
    return 'ended';
  }

  @Locked('lost', { onLost: 'ignore' })
  async ignores(error?: Error): Promise<string> {
    return this.loses(error).catch((lost: LockLostError) => {
      if (lost.outcome?.status === 'rejected') throw lost.outcome.reason;
      return 'ignored';
    });
  }
}

const orders = async () => {
  const test = await makeApp({ providers: [Orders] });
  return { ...test, orders: test.app.get(Orders) };
};

it('a locked method is refused with the name of the holder, skipped, or answered by a function of its arguments, without running', async () => {
  const { orders: service, locks } = await orders();
  const held = await locks.acquire('order');
  const error = await service.throwing().catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockContendedError);
  expect(error).toMatchObject({ code: 'LOCK_CONTENDED', status: 409, key: 'order', holder: { pid: process.pid } });
  expect(await service.skipping()).toBe(undefined);
  expect(await service.answering('o1', 5)).toBe('o1 for 5 is busy');
  await expect(service.failing()).rejects.toThrow(new RangeError('of onContended'));
  // The refusal of a nested lock is not taken for its own.
  await expect(service.outer()).rejects.toMatchObject({ code: 'LOCK_CONTENDED', key: 'order' });
  await expect(service.outerAnswering()).rejects.toMatchObject({ code: 'LOCK_CONTENDED', key: 'order' });
  expect(service.ran).toBe(0);
  await held.release();
  expect([await service.skipping(), await service.answering('o1', 5)]).toEqual(['ran', 'ran']);
});

it('a refused locked method names the locks of the methods that called it [G372]', async () => {
  const { orders: service, locks } = await orders();
  await using _held = await locks.acquire('order');
  await expect(service.outer()).rejects.toMatchObject({
    method: 'Orders.throwing',
    holding: ['outer'],
    message: expect.stringMatching(/^Orders\.throwing: Lock "order" .* This call held "outer" meanwhile: /),
  });
  await expect(service.throwing()).rejects.toMatchObject({ holding: [] });
});

it('a method that lost its lock, or held it too long, rejects with its outcome, unless onLost is "ignore"', async () => {
  const { orders: service, locks } = await orders();
  await expect(service.hangs()).rejects.toMatchObject({
    code: 'LOCK_LOST',
    key: 'hangs',
    reason: 'overstayed',
    outcome: { status: 'fulfilled', value: 'ended' },
  });
  expect(await locks.isLocked('hangs')).toBe(false);
  await expect(service.loses()).rejects.toMatchObject({ reason: 'forced', outcome: { value: 'written' } });
  expect(await service.ignores()).toBe('ignored');
  await expect(service.ignores(new Error('of the work'))).rejects.toThrow('of the work');
});
