import { Controller, Get, Injectable, Param, type ExecutionContext } from '@nestjs/common';
import { fromContext, Locked, LockContendedError, LockLostError, LockService } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { makeApp, startApp } from '../support/nest-app.js';

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
  it('throws by default, with who holds it', async () => {
    const { orders: service, locks } = await orders();
    await using _held = await locks.acquire('order');
    const error = await service.throwing().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockContendedError);
    expect(error).toMatchObject({ code: 'LOCK_CONTENDED', status: 409, key: 'order', holder: { pid: process.pid } });
    expect(service.ran).toBe(0);
  });

  it('returns undefined with skip', async () => {
    const { orders: service, locks } = await orders();
    await using held = await locks.acquire('order');
    expect([await service.skipping(), service.ran]).toEqual([undefined, 0]);
    await held.release();
    expect([await service.skipping(), service.ran]).toEqual(['ran', 1]);
  });

  it('returns what a function of the arguments returns, or throws what it throws', async () => {
    const { orders: service, locks } = await orders();
    await using _held = await locks.acquire('order');
    expect(await service.answering('o1', 5)).toBe('o1 for 5 is busy');
    await expect(service.failing()).rejects.toThrow(new RangeError('of onContended'));
    expect(service.ran).toBe(0);
  });

  it('does not take the contention of a nested lock for its own', async () => {
    const { orders: service, locks } = await orders();
    await using _held = await locks.acquire('order');
    await expect(service.outer()).rejects.toMatchObject({ code: 'LOCK_CONTENDED', key: 'order' });
    await expect(service.outerAnswering()).rejects.toMatchObject({ code: 'LOCK_CONTENDED', key: 'order' });
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
});

describe('a handler when somebody else holds the lock', () => {
  @Controller()
  class Handlers {
    @Get('skip/:id')
    @Locked('{params.id}', { waitMs: 0, onContended: 'skip' })
    async skip(@Param('id') _id: string): Promise<string | undefined> {
      return 'ran';
    }

    @Get('static')
    @Locked('a', { waitMs: 0, onContended: 'skip' })
    async static(): Promise<string | undefined> {
      return 'ran';
    }

    @Get('arguments/:id')
    @Locked('a', { waitMs: 0, onContended: (id: string) => `${id} is busy` })
    async arguments(@Param('id') _id: string): Promise<string> {
      return 'ran';
    }

    @Get('template/:id')
    @Locked('{params.id}', { waitMs: 0, onContended: (context) => `${context.getHandler().name} is busy` })
    async template(@Param('id') _id: string): Promise<string> {
      return 'ran';
    }

    @Get('context/:id')
    @Locked(fromContext((context) => context.switchToHttp().getRequest().params.id), {
      waitMs: 0,
      onContended: async (context: ExecutionContext) => `${context.getHandler().name} is busy`,
    })
    async context(@Param('id') _id: string): Promise<string> {
      return 'ran';
    }
  }

  it.each([
    ['skip/a', ''],
    ['static', ''],
    ['arguments/a', 'a is busy'],
    ['template/a', 'template is busy'],
    ['context/a', 'context is busy'],
  ])('%s: answers without running', async (path, answer) => {
    const { url, locks } = await startApp({ controllers: [Handlers] });
    await using held = await locks.acquire('a');
    const busy = await fetch(`${url}/${path}`);
    expect([busy.status, await busy.text()]).toEqual([200, answer]);
    await held.release();
    expect(await (await fetch(`${url}/${path}`)).text()).toBe('ran');
  });
});

describe('a method that loses its lock', () => {
  it('a method with maxHoldMs that hangs is told by its signal, and rejects with its outcome once it has ended', async () => {
    const { orders: service, locks } = await orders();
    const error = await service.hangs().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockLostError);
    expect(error).toMatchObject({
      key: 'hangs',
      reason: 'overstayed',
      outcome: { status: 'fulfilled', value: 'ended' },
    });
    expect(await locks.isLocked('hangs')).toBe(false);
  });

  it('settles as it would have with onLost ignore', async () => {
    const { orders: service } = await orders();
    expect(await service.ignores()).toBe('ignored');
    await expect(service.ignores(new Error('of the work'))).rejects.toThrow('of the work');
  });
});

describe('a handler that loses its lock', () => {
  @Controller()
  class Handlers {
    constructor(private readonly locks: LockService) {}

    @Get('reject')
    @Locked('lost')
    async reject(): Promise<string> {
      await this.locks.forceRelease('lost');
      return 'written';
    }

    @Get('ignore')
    @Locked('lost', { onLost: 'ignore' })
    async ignore(): Promise<string> {
      await this.locks.forceRelease('lost');
      return 'written';
    }
  }

  it('answers 503, and its result is in the error only', async () => {
    let error: unknown;
    const { url } = await startApp({ controllers: [Handlers] }, undefined, (app) =>
      app.useGlobalFilters({
        catch(exception, host) {
          error = exception;
          host.switchToHttp().getResponse().status(503).end();
        },
      }),
    );
    expect((await fetch(`${url}/reject`)).status).toBe(503);
    expect(error).toMatchObject({ code: 'LOCK_LOST', outcome: { status: 'fulfilled', value: 'written' } });
  });

  it('answers as it would have with onLost ignore', async () => {
    const { url } = await startApp({ controllers: [Handlers] });
    const response = await fetch(`${url}/ignore`);
    expect([response.status, await response.text()]).toEqual([200, 'written']);
  });
});
