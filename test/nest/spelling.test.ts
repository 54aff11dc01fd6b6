import { Body, Controller, Param, ParseFloatPipe, ParseIntPipe, ParseUUIDPipe, Post, type Type } from '@nestjs/common';
import { Locked, lockKey } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { exampleWith } from '../readme/compile.js';
import { Gate } from '../support/gate.js';
import { HTTP_ADAPTERS, post, startApp, type TestApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

const ID = '5c0e63fd-7f2b-4f3c-9d4a-0f9f3f1f7a10';
const NFC = 'caf\u00E9';
const NFD = 'cafe\u0301';

@Controller()
class Bank {
  @Post('int/:from')
  @Locked('account:{0}')
  async int(@Param('from', ParseIntPipe) _from: number): Promise<void> {}

  @Post('float/:from')
  @Locked(['account:{0}', 'ledger'])
  async float(@Param('from', ParseFloatPipe) _from: number): Promise<void> {}

  @Post('id/:from')
  @Locked((from: string) => lockKey`account:${from.toLowerCase()}`)
  async id(@Param('from', ParseUUIDPipe) _from: string): Promise<void> {}

  @Post('name')
  @Locked(({ from, to }: { from: string; to: string }) =>
    [from, to].map((name) => lockKey`account:${name.normalize('NFC')}`),
  )
  async name(@Body() _transfer: { from: string; to: string }): Promise<void> {}
}

describe.each(HTTP_ADAPTERS)('spellings of one account on %s', (_name, makeAdapter) => {
  const start = () => startApp({ controllers: [Bank] }, { memory: true }, undefined, makeAdapter());

  async function keysOf(app: TestApp, requests: (readonly [path: string, body?: object])[]): Promise<string[]> {
    for (const [path, body] of requests) expect((await post(`${app.url}/${path}`, body ?? {})).status).toBe(201);
    return app.acquired;
  }

  it('are one key of the arguments, which the pipes or the key function have normalized [G565]', async () => {
    expect(
      await keysOf(await start(), [
        ['int/17'],
        ['int/017'],
        ['float/17'],
        ['float/17.0'],
        [`id/${ID}`],
        [`id/${ID.toUpperCase()}`],
        ['name', { from: NFC, to: NFD }],
      ]),
    ).toEqual([
      'account:17',
      'account:17',
      ...['account:17', 'ledger'],
      ...['account:17', 'ledger'],
      `account:${ID}`,
      `account:${ID}`,
      `account:${NFC}`,
    ]);
  });
});

interface Accounts {
  balanceOf(account: number): Promise<number>;
  setBalance(account: number, balance: number): Promise<void>;
}

it('the payment of docs/handlers.md is made once when two requests spell its account differently [G566]', async () => {
  const { Accounts, AccountsController } = await exampleWith<{
    Accounts: Type<Accounts>;
    AccountsController: Type;
  }>('docs/handlers.md', 'class AccountsController');
  const balances = new Map([[17, 100]]);
  const both = new Gate();
  let reads = 0;
  const accounts: Accounts = {
    async balanceOf(account) {
      const balance = balances.get(account)!;
      reads++;
      await both.opened;
      return balance;
    },
    async setBalance(account, balance) {
      balances.set(account, balance);
    },
  };
  const { url, locks, acquired } = await startApp({
    controllers: [AccountsController],
    providers: [{ provide: Accounts, useValue: accounts }],
  });
  const answers = ['17', '017'].map((account) => post(`${url}/accounts/${account}/payments`, { amount: 100 }));
  const waiting = () => locks.stats().reduce((sum, each) => sum + each.waiting, 0);
  await until(() => reads + waiting() === 2, { what: 'each request has read the balance, or waits for the lock' });
  both.open();
  const statuses = (await Promise.all(answers)).map(({ status }) => status);
  expect(statuses.sort()).toEqual([201, 409]);
  expect(balances.get(17)).toBe(0);
  for (const code of ['CAF\u00C9', NFC, NFD])
    expect((await post(`${url}/accounts/vouchers/${encodeURIComponent(code)}`, {})).status).toBe(201);
  expect(acquired.slice(-3)).toEqual(Array(3).fill(`voucher:${NFC}`));
});
