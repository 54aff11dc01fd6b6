import { Controller, Injectable, Post, type NestInterceptor } from '@nestjs/common';
import { Locked, LockOptionsError, LockService } from 'nest-redis-lock';
import { firstValueFrom, from } from 'rxjs';
import { beforeEach, describe, expect, it } from 'vitest';
import { makeApp, post, startApp } from '../support/nest-app.js';
import { isInTransaction, transaction, Transactional } from '../support/transactional.js';

const settings = { memory: true, insideTransaction: isInTransaction } as const;
const RIGHT = 'Put @Locked above @Transactional';

let committed: () => void = () => {};
beforeEach(() => {
  committed = () => {};
});

@Injectable()
class Orders {
  runs = 0;

  constructor(private readonly locks: LockService) {}

  @Transactional()
  @Locked('order:{0}')
  async transactionOutside(_id: string): Promise<void> {
    this.runs++;
  }

  @Locked('order:{0}')
  @Transactional(() => committed())
  async lockOutside(_id: string): Promise<void> {
    this.runs++;
  }

  @Transactional()
  async callsALockedMethod(id: string): Promise<void> {
    await this.lockOutside(id);
  }

  @Locked('order:{0}')
  async nested(id: string): Promise<void> {
    await transaction(() => this.transactionOutside(id));
  }

  @Locked('order:{0}')
  async anotherLockInside(id: string): Promise<void> {
    await transaction(() => this.locks.withLock(`line:${id}`, async () => {}));
  }

  @Transactional()
  @Locked('partner:{0}', { onTransaction: 'allow' })
  async allowed(_id: string): Promise<void> {
    this.runs++;
  }

  @Transactional()
  @Locked('account:{0}', { onTransaction: 'refuse' })
  async refused(_id: string): Promise<void> {
    this.runs++;
  }
}

const start = (lock: Parameters<typeof makeApp>[1] = settings) => makeApp({ providers: [Orders] }, lock);

describe('a lock that is taken inside a transaction', () => {
  it('a lock that is taken inside a transaction is warned of once for each decorated method, which still runs [G201]', async () => {
    const { app, log } = await start();
    const orders = app.get(Orders);
    for (const id of ['1', '2', '3']) await orders.transactionOutside(id);
    expect(orders.runs).toBe(3);
    expect(log.lines).toEqual([
      'warn Orders.transactionOutside takes the lock "order:1" inside a transaction: the lock is released before the ' +
        `commit, and its next holder may read stale data. ${RIGHT}, or take the lock before the transaction ` +
        'begins; see docs/transactions.md.',
    ]);
  });

  it('a lock that is taken inside the transaction of a caller is warned of [G202]', async () => {
    const { app, log } = await start();
    await app.get(Orders).callsALockedMethod('1');
    expect(log.lines).toEqual([expect.stringContaining('Orders.lockOutside takes the lock "order:1" inside')]);
  });

  it('is warned of when the call holds the lock of another key', async () => {
    const { app, log } = await start();
    await app.get(Orders).anotherLockInside('1');
    expect(log.lines).toEqual([expect.stringContaining('The lock "line:1" is taken inside a transaction')]);
  });

  it('is warned of when an interceptor outside of LockedInterceptor began the transaction', async () => {
    @Controller()
    class Handlers {
      @Post()
      @Locked('import:{body.id}')
      async import(): Promise<void> {}
    }
    const inTransaction: NestInterceptor = {
      intercept: (_context, next) =>
        from(transaction(() => firstValueFrom(next.handle(), { defaultValue: undefined }))),
    };
    const { url, log } = await startApp({ controllers: [Handlers] }, settings, (app) =>
      app.useGlobalInterceptors(inTransaction),
    );
    expect((await post(url, { id: '7' })).status).toBe(201);
    expect(log.lines).toEqual([expect.stringContaining('Handlers.import takes the lock "import:7" inside')]);
  });

  it.each<[call: string, take: (locks: LockService, key: string) => Promise<unknown>]>([
    ['withLock', (locks, key) => locks.withLock(key, () => {})],
    ['acquire', async (locks, key) => (await locks.acquire(key)).release()],
    ['tryAcquire', async (locks, key) => (await locks.tryAcquire(key))?.release()],
  ])('is warned of by %s once for each first part of a key', async (_call, take) => {
    const { locks, log } = await start();
    await transaction(async () => {
      for (const key of ['order:1', 'order:2', 'order', 'line:1:2', 'line:3']) await take(locks, key);
    });
    expect(log.lines).toEqual([
      expect.stringContaining('warn The lock "order:1" is taken inside a transaction: the lock is released before'),
      expect.stringContaining('warn The lock "line:1:2" is taken inside a transaction: the lock is released before'),
    ]);
  });

  it('is warned of once for each first part of a key, whatever its tenant', async () => {
    const { locks, log } = await start();
    await transaction(async () => {
      for (const scope of ['acme', 'globex'])
        for (const key of ['order:1', 'line:1']) await locks.withLock(key, { scope }, () => {});
    });
    expect(log.lines).toEqual(
      ['order:1', 'line:1'].map((key) => expect.stringContaining(`lock "@acme/${key}" is taken`)),
    );
  });

  it('is warned of for at most 100 first parts of keys, and still for each decorated method', async () => {
    const { app, locks, log } = await start();
    await transaction(async () => {
      for (let id = 0; id < 150; id++) await locks.withLock(`order-${id}`, () => {});
    });
    expect(log.lines).toHaveLength(100);
    await app.get(Orders).transactionOutside('1');
    expect(log.lines).toHaveLength(101);
  });

  it('is warned of also when it is contended, before the call waits', async () => {
    const { app, locks, log } = await start({ ...settings, waitMs: 0 });
    const lock = await locks.acquire('order:1');
    await expect(app.get(Orders).transactionOutside('1')).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    expect(log.lines).toHaveLength(1);
    await lock.release();
  });

  it('a lock that is taken inside a transaction is refused with onTransaction "refuse", of the module or of the call, and nothing runs [G203]', async () => {
    const { app, locks, log, acquired } = await start({ ...settings, onTransaction: 'refuse' });
    const orders = app.get(Orders);
    const refused = orders.transactionOutside('1');
    await expect(refused).rejects.toBeInstanceOf(LockOptionsError);
    await expect(refused).rejects.toThrow(
      /^Orders\.transactionOutside takes the lock "order:1" inside a transaction: /,
    );
    await expect(transaction(() => locks.acquire('x'))).rejects.toThrow('The lock "x" is taken inside a transaction');
    await expect(transaction(() => locks.tryAcquire('x'))).rejects.toThrow('inside a transaction');
    expect(orders.runs).toBe(0);
    expect(acquired).toEqual([]);
    const ofTheCall = await start();
    await expect(ofTheCall.app.get(Orders).refused('1')).rejects.toThrow('Orders.refused takes');
    expect([...log.lines, ...ofTheCall.log.lines]).toEqual([]);
  });

  it('is neither warned of nor refused with onTransaction "allow" of the call', async () => {
    const { app, log, locks } = await start({ ...settings, onTransaction: 'refuse' });
    await app.get(Orders).allowed('1');
    await transaction(() => locks.withLock('x', { onTransaction: 'allow' }, () => {}));
    expect(app.get(Orders).runs).toBe(1);
    expect(log.lines).toEqual([]);
  });
});

describe('nothing is said of a lock', () => {
  it('that is taken outside of the transaction, which commits before the release', async () => {
    const { app, log, locks } = await start({ ...settings, onTransaction: 'refuse' });
    const order: string[] = [];
    committed = () => order.push('committed');
    locks.events$.subscribe(({ type }) => order.push(type));
    await app.get(Orders).lockOutside('1');
    expect(order).toEqual(['acquired', 'committed', 'released']);
    expect(log.lines).toEqual([]);
  });

  it('that the call holds already: it is not asked for', async () => {
    let asked = 0;
    const insideTransaction = () => {
      asked++;
      return isInTransaction();
    };
    const { app, log } = await start({ memory: true, insideTransaction });
    await app.get(Orders).nested('1');
    expect(asked).toBe(1);
    expect(log.lines).toEqual([]);
  });

  it('that the interceptor of a handler takes, whichever decorator stands above', async () => {
    @Controller()
    class Handlers {
      @Post('static')
      @Transactional()
      @Locked('import')
      async static(): Promise<void> {}

      @Post('request')
      @Transactional()
      @Locked('import:{body.id}')
      async request(): Promise<void> {}
    }
    const { url, log, acquired } = await startApp({ controllers: [Handlers] }, settings);
    for (const path of ['static', 'request']) expect((await post(`${url}/${path}`, { id: '7' })).status).toBe(201);
    expect(acquired).toEqual(['import', 'import:7']);
    expect(log.lines).toEqual([]);
  });
});

describe('insideTransaction', () => {
  it.each<[what: string, insideTransaction: () => unknown, problem: string]>([
    [
      'throws',
      () => {
        throw new Error('TransactionHost not initialized');
      },
      'TransactionHost not initialized',
    ],
    ['returns no answer', () => undefined, 'it returned undefined instead of true or false'],
    ['returns a Promise', async () => true, 'it returned a Promise instead of true or false'],
    [
      'returns a Promise that rejects',
      async () => {
        throw new Error('too late');
      },
      'it returned a Promise instead of true or false',
    ],
  ])('that %s costs no lock, also with "refuse", and is logged once', async (_what, insideTransaction, problem) => {
    const { app, log } = await start({
      memory: true,
      insideTransaction: insideTransaction as () => boolean,
      onTransaction: 'refuse',
    });
    await app.get(Orders).transactionOutside('1');
    await app.get(Orders).lockOutside('2');
    expect(app.get(Orders).runs).toBe(2);
    expect(log.lines).toEqual([
      `warn insideTransaction failed, so it is unknown whether locks are taken inside transactions: ${problem}.`,
    ]);
  });

  it('is asked in the async context of the call, and not where onTransaction is "allow"', async () => {
    const asked: boolean[] = [];
    const { locks } = await start({
      memory: true,
      insideTransaction: () => {
        asked.push(isInTransaction());
        return false;
      },
    });
    await locks.withLock('a', () => {});
    await transaction(() => locks.withLock('b', () => {}));
    await locks.withLock('c', { onTransaction: 'allow' }, () => {});
    expect(asked).toEqual([false, true]);
  });

  it('is needed where onTransaction is "refuse", of the module or of the call', async () => {
    const message = 'onTransaction "refuse" needs the module option insideTransaction';
    await expect(start({ memory: true, onTransaction: 'refuse' })).rejects.toThrow(message);
    await expect(start({ memory: true })).rejects.toThrow(message); // a method asks for it
  });

  it.each<[string, object]>([
    ['insideTransaction must be a function that returns true or false: got true.', { insideTransaction: true }],
    ['onTransaction must be "warn" or "refuse" or "allow": got "throw".', { onTransaction: 'throw' }],
  ])('is checked: %s', async (message, options) => {
    await expect(start({ memory: true, ...options })).rejects.toThrow(message);
  });
});
