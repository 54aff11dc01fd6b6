import { Controller, Get, Injectable, Module, type Provider } from '@nestjs/common';
import { Test, type TestingModuleBuilder } from '@nestjs/testing';
import { getLockServiceToken, Locked, LockOptionsError, LockService, RedisLockModule } from 'nest-redis-lock';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { RecordingLogger, startModules } from '../support/nest-app.js';

let ran: string[];
beforeEach(() => {
  ran = [];
});

@Injectable()
class Orders {
  @Locked('order:{0}')
  async pay(id: string): Promise<void> {
    ran.push(`pay ${id}`);
  }
}

class Billing {
  @Locked('billing', { registration: 'billing' })
  async bill(): Promise<void> {
    ran.push('bill');
  }
}

@Controller()
class Handlers {
  @Get('request/:id')
  @Locked('order:{params.id}')
  async ofRequest(): Promise<void> {
    ran.push('request');
  }

  @Get('static')
  @Locked('static')
  async ofText(): Promise<void> {
    ran.push('static');
  }
}

/** As mocking libraries create them: every property exists, and is a function. */
const deepMock = (): object =>
  new Proxy(
    {},
    { get: (_, name) => (name === 'then' || typeof name === 'symbol' ? undefined : () => Promise.resolve()) },
  );
/** As sinon creates them: an instance of the class with methods that do nothing. */
const stub = (): object => {
  const names = Object.getOwnPropertyNames(LockService.prototype);
  const methods = names.map((name) => [name, { value: () => Promise.resolve() }]);
  return Object.create(LockService.prototype, Object.fromEntries(methods) as PropertyDescriptorMap) as object;
};

class FakeLocks {
  withLock(_key: string, work: () => unknown): unknown {
    return work();
  }
}

const STAND_INS: [what: string, make: () => object, got: string][] = [
  ['an object with withLock', () => ({ withLock: (_: string, work: () => unknown) => work() }), 'a plain object'],
  ['an instance of a class', () => new FakeLocks(), 'an object of the class FakeLocks'],
  ['a mock that answers anything', deepMock, 'a plain object'],
  ['a stub made from the class', stub, 'an object of the class LockService that RedisLockModule did not create'],
];

const registrations = ['default', 'billing'].map((name) => RedisLockModule.forRoot({ memory: true, name }));

async function start(replace: (builder: TestingModuleBuilder) => TestingModuleBuilder, log = new RecordingLogger()) {
  const builder = Test.createTestingModule({
    imports: registrations,
    providers: [Orders, Billing],
    controllers: [Handlers],
  }).setLogger(log);
  const app = (await replace(builder).compile()).createNestApplication();
  onTestFinished(() => app.close());
  await app.listen(0, '127.0.0.1');
  return { app, log, url: await app.getUrl() };
}

const ADVICE =
  'In a test, import LockTestingModule.forRoot() of nest-redis-lock/testing, which needs no Redis, and leave LockService as it is.';

describe.each(STAND_INS)('with %s in the place of the service', (_, make, got) => {
  const replaced = () => start((builder) => builder.overrideProvider(LockService).useValue(make()));

  it('a locked method with a stand-in for the service does not run, and says so [G208]', async () => {
    const { app, url, log } = await replaced();
    const paying = app.get(Orders).pay('7');
    await expect(paying).rejects.toThrow(
      `Orders.pay did not run: its LockService is ${got}, probably a mock. ${ADVICE}`,
    );
    await expect(paying).rejects.toBeInstanceOf(LockOptionsError);
    for (const path of ['request/1', 'static']) expect((await fetch(`${url}/${path}`)).status).toBe(500);
    const said = log.lines.join();
    for (const name of ['ofRequest', 'ofText'])
      expect(said).toContain(`Handlers.${name} did not run: its LockService is ${got}`);
    expect(ran).toEqual([]);
  });
});

it('a service of another copy of the library is not taken for a mock', async () => {
  class LockService {
    readonly registration = 'billing';
    async withLockOr(): Promise<void> {}
  }
  const { app } = await start((builder) =>
    builder.overrideProvider(getLockServiceToken('billing')).useValue(new LockService()),
  );
  await expect(app.get(Billing).bill()).rejects.toThrow(
    'is a LockService of another copy of nest-redis-lock. Run npm ls nest-redis-lock to see why it is installed twice.',
  );
});

it.each<[what: string, provider: Provider, method: string]>([
  ['useFactory', { provide: Orders, useFactory: () => new Orders() }, 'Orders.pay'],
  ['an async useFactory', { provide: 'orders', useFactory: async () => new Orders() }, 'Orders.pay'],
  ['useValue', { provide: Orders, useValue: new Orders() }, 'Orders.pay'],
  ['a subclass', { provide: Orders, useFactory: () => new (class SpecialOrders extends Orders {})() }, 'Orders.pay'],
  ['a named registration', { provide: Billing, useFactory: () => new Billing() }, 'Billing.bill'],
])('an application does not start when the service cannot be injected: %s [G209]', async (_, provider, method) => {
  @Module({ providers: [provider] })
  class OrdersModule {}
  const starting = startModules({ imports: [...registrations, OrdersModule] });
  await expect(starting).rejects.toThrow(
    `${method} in OrdersModule is @Locked, but has no LockService: Nest injects into what it creates itself, not into ` +
      'what useFactory or useValue provides. Write useClass, or moduleRef.create(',
  );
  await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
});
