import { Injectable } from '@nestjs/common';
import { Locked, LockLostError, LockService } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';

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
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
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

describe('when somebody else holds the lock', () => {
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
});
