import { Injectable } from '@nestjs/common';
import { Locked, LockOptionsError } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';
import { isInTransaction, transaction, Transactional } from '../support/transactional.js';

const settings = { memory: true, insideTransaction: isInTransaction } as const;
const RIGHT = 'Put @Locked above @Transactional';

@Injectable()
class Orders {
  runs = 0;

  @Transactional()
  @Locked('order:{0}')
  async transactionOutside(_id: string): Promise<void> {
    this.runs++;
  }

  @Locked('order:{0}')
  @Transactional()
  async lockOutside(_id: string): Promise<void> {
    this.runs++;
  }

  @Transactional()
  async callsALockedMethod(id: string): Promise<void> {
    await this.lockOutside(id);
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
  it('a lock that is taken inside a transaction causes one warning for each decorated method, which still runs [G201]', async () => {
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

  it('a lock that is taken inside the transaction of a caller causes a warning [G202]', async () => {
    const { app, log } = await start();
    await app.get(Orders).callsALockedMethod('1');
    expect(log.lines).toEqual([expect.stringContaining('Orders.lockOutside takes the lock "order:1" inside')]);
  });

  it('a lock that is taken inside a transaction is refused with onTransaction "refuse", of the module or of the call, and nothing runs, unless the call allows it [G203]', async () => {
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
    await orders.allowed('1');
    expect(orders.runs).toBe(1);
    const ofTheCall = await start();
    await expect(ofTheCall.app.get(Orders).refused('1')).rejects.toThrow('Orders.refused takes');
    expect([...log.lines, ...ofTheCall.log.lines]).toEqual([]);
  });
});

it('calls that take locks inside a transaction cause one warning for each first part of a key, whatever its tenant', async () => {
  const { locks, log } = await start();
  await transaction(async () => {
    for (const scope of ['acme', 'globex'])
      for (const key of ['order:1', 'order:2', 'line:1:2']) await locks.withLock(key, { scope }, () => {});
    await (await locks.tryAcquire('order:3'))!.release();
  });
  expect(log.lines).toEqual(
    ['order:1', 'line:1:2'].map((key) => expect.stringContaining(`warn The lock "@acme/${key}" is taken inside`)),
  );
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
    ['returns no answer', () => undefined, 'it must return true or false: got undefined'],
    ['returns a Promise', async () => true, 'it must return true or false: got a Promise, which is not awaited'],
    [
      'returns a Promise that rejects',
      async () => {
        throw new Error('too late');
      },
      'it must return true or false: got a Promise, which is not awaited',
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
});
