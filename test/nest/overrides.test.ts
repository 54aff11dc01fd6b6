import { Controller, Injectable, Post, type Type } from '@nestjs/common';
import { Fenced, FENCE_STORE, LeaderOnly, Locked, NotLocked, WhileLeader, type FenceStore } from 'nest-redis-lock';
import { LockedCron } from 'nest-redis-lock/schedule';
import { expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';

@Injectable()
class Orders {
  @Locked('order')
  async pay(): Promise<void> {}
}

/** The log of an application that starts with these classes. */
async function logOf(...providers: Type[]): Promise<string[]> {
  const { log } = await makeApp({ providers });
  return log.lines;
}

const RUNS = 'it runs without the decorator, except for what it calls with super';
const NEVER = 'only your own code calls it';

const warning = (override: string, base: string, decorators: string, effect = RUNS) =>
  `warn ${override} overrides ${base}, which is ${decorators}, but has no such decorator: ${effect}. Decorate it too, or add ` +
  '@NotLocked() if this is intended.';

it('the start of an application warns once of an override without the @Locked of the method of its base class [G555]', async () => {
  class Unlocked extends Orders {
    override async pay(): Promise<void> {}
  }
  class Further extends Unlocked {}
  const { log } = await makeApp({
    providers: [
      Orders,
      Unlocked,
      Further,
      { provide: 'again', useClass: Unlocked },
      { provide: 'alias', useExisting: Further },
    ],
  });
  expect(log.lines).toEqual([warning('Unlocked.pay', 'Orders.pay', '@Locked')]);
});

it('the start of an application warns of an override without another decorator of the library', async () => {
  @Injectable()
  class Jobs {
    @LeaderOnly('report')
    async report(): Promise<void> {}
    @WhileLeader('relay')
    async relay(): Promise<void> {}
    @LockedCron('0 3 * * *', 'nightly', { holdMs: 60_000 })
    async nightly(): Promise<void> {}
  }
  class OtherJobs extends Jobs {
    override async report(): Promise<void> {}
    override async relay(): Promise<void> {}
    override async nightly(): Promise<void> {}
  }
  expect(await logOf(OtherJobs)).toEqual([
    warning('OtherJobs.report', 'Jobs.report', '@LeaderOnly'),
    warning('OtherJobs.relay', 'Jobs.relay', '@WhileLeader', NEVER),
    warning('OtherJobs.nightly', 'Jobs.nightly', '@LockedCron', NEVER),
  ]);
  class Stock {
    @Locked('stock')
    @Fenced('stock')
    async write(): Promise<void> {}
  }
  @Controller('stock')
  class OtherStock extends Stock {
    @Post()
    override async write(): Promise<void> {}
  }
  const store: FenceStore = { raise: async () => true };
  const { log } = await makeApp({
    controllers: [OtherStock],
    providers: [{ provide: FENCE_STORE, useValue: store }],
  });
  expect(log.lines).toEqual([warning('OtherStock.write', 'Stock.write', '@Fenced and @Locked')]);
});

it('an override that is decorated, or marked as intended, causes no warning, and an inherited method is locked', async () => {
  class AlsoLocked extends Orders {
    @Locked('other')
    override async pay(): Promise<void> {
      await super.pay();
    }
  }
  class Meant extends Orders {
    @NotLocked()
    override async pay(): Promise<void> {}
  }
  class OfMeant extends Meant {
    override async pay(): Promise<void> {}
  }
  class Inheriting extends Orders {}
  const { app, log, acquired } = await makeApp({ providers: [Orders, AlsoLocked, Meant, OfMeant, Inheriting] });
  expect(log.lines).toEqual([]);
  for (const made of [AlsoLocked, OfMeant, Inheriting]) await app.get<Orders>(made).pay();
  expect(acquired).toEqual(['other', 'order', 'order']);
});
