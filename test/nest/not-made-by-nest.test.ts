import { Controller, Get, Inject, Injectable, Module, Scope, type ModuleMetadata, type Provider } from '@nestjs/common';
import { LazyModuleLoader, ModuleRef } from '@nestjs/core';
import { Test, type TestingModule } from '@nestjs/testing';
import { SubscribeMessage } from '@nestjs/websockets';
import { Locked, LockOptionsError, LockService, RedisLockModule } from 'nest-redis-lock';
import { describe, expect, it, onTestFinished } from 'vitest';
import { RecordingLogger } from '../support/nest-app.js';

@Injectable()
class Orders {
  @Locked('order:{0}')
  async pay(id: string): Promise<string> {
    return `${id} is paid`;
  }

  async plain(): Promise<string> {
    return 'plain';
  }
}

class SpecialOrders extends Orders {}

class PlainOrders extends Orders {
  override async pay(id: string): Promise<string> {
    return `${id} without a lock`;
  }
}

class Billing {
  @Locked('billing', { registration: 'billing' })
  async bill(): Promise<string> {
    return 'billed';
  }
}

const locks = RedisLockModule.forRoot({ memory: true });
const billing = RedisLockModule.forRoot({ memory: true, name: 'billing' });

async function start(metadata: ModuleMetadata): Promise<TestingModule> {
  @Module(metadata)
  class OrdersModule {}
  const app = await Test.createTestingModule({ imports: [locks, billing, OrdersModule] })
    .setLogger(new RecordingLogger())
    .compile();
  onTestFinished(() => app.close().catch(() => {})); // Nest 11 fails again with what the start failed with
  return app.init();
}

describe('an application does not start with locked methods into which Nest cannot inject the service:', () => {
  it.each<[what: string, provider: Provider, method: string]>([
    ['useFactory', { provide: Orders, useFactory: () => new Orders() }, 'Orders.pay'],
    ['an async useFactory', { provide: 'orders', useFactory: async () => new Orders() }, 'Orders.pay'],
    ['useValue', { provide: Orders, useValue: new Orders() }, 'Orders.pay'],
    ['a subclass', { provide: Orders, useFactory: () => new SpecialOrders() }, 'Orders.pay'],
    ['a named registration', { provide: Billing, useFactory: () => new Billing() }, 'Billing.bill'],
  ])('an application does not start when the service cannot be injected: %s [G209]', async (_, provider, method) => {
    const starting = start({ providers: [provider] });
    await expect(starting).rejects.toThrow(
      `${method} in OrdersModule is @Locked, but has no LockService: Nest injects into what it creates itself, not into ` +
        'what useFactory or useValue provides. Write useClass, or moduleRef.create(',
    );
    await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
  });

  it('one that is exported, and known by a second name', async () => {
    const providers = [
      { provide: 'alias', useExisting: Orders },
      { provide: Orders, useFactory: () => new Orders() },
    ];
    await expect(start({ providers, exports: ['alias', Orders] })).rejects.toThrow(
      'Orders.pay in OrdersModule is @Locked',
    );
  });
});

describe('an application starts with', () => {
  it('instances of locked classes that Nest made: by class, by another name, in a factory', async () => {
    const providers: Provider[] = [
      Orders,
      { provide: 'class', useClass: SpecialOrders },
      { provide: 'alias', useExisting: Orders },
      { provide: 'created', inject: [ModuleRef], useFactory: (ref: ModuleRef) => ref.create(Orders) },
      { provide: 'passed on', inject: [Orders], useFactory: (orders: Orders) => orders },
    ];
    const app = await start({ providers });
    for (const token of [Orders, 'class', 'alias', 'created', 'passed on']) {
      expect(await app.get<Orders>(token).pay('7')).toBe('7 is paid');
    }
  });

  it('classes of other scopes, which are made later', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest extends Orders {}
    @Injectable({ scope: Scope.TRANSIENT })
    class Transient extends Orders {}
    @Controller()
    class Handlers {
      constructor(readonly orders: PerRequest) {}
      @Get()
      @Locked('handler')
      async get(): Promise<void> {}
    }
    @Injectable()
    class User {
      constructor(@Inject('transient') readonly orders: Orders) {}
    }
    const app = await start({
      controllers: [Handlers],
      providers: [
        PerRequest,
        Transient,
        User,
        { provide: 'request', useExisting: PerRequest },
        { provide: 'transient', useExisting: Transient },
        { provide: 'later', scope: Scope.REQUEST, useFactory: () => new Orders() },
        { provide: 'one each', scope: Scope.TRANSIENT, useFactory: () => new Orders() },
      ],
    });
    expect(await app.get(User).orders.pay('7')).toBe('7 is paid');
    const later = await app.resolve<Orders>('later');
    await expect(later.pay('7')).rejects.toThrow('Orders has no LockService');
  });

  it('objects whose locked methods were replaced, or have a key made of the request, and with mocks', async () => {
    const stubbed = Object.assign(Object.create(Orders.prototype) as Orders, { pay: async () => 'stubbed' });
    const mock = new Proxy({}, { get: (_, name) => (name === 'then' ? undefined : () => undefined) });
    class OfRequest {
      @SubscribeMessage('order')
      @Locked('order:{data.id}')
      async handle(): Promise<void> {}
    }
    class Failing {
      get value(): never {
        throw new Error('read');
      }
    }
    const values = [
      stubbed,
      new PlainOrders(),
      mock,
      new Failing(),
      new OfRequest(), // the interceptor has a service of its own
      null,
      undefined,
      7,
      'text',
      class {},
      Object.create(null),
    ];
    const app = await start({ providers: values.map((useValue, index) => ({ provide: `value ${index}`, useValue })) });
    expect(await app.get<Orders>('value 0').pay('7')).toBe('stubbed');
    expect(await app.get<Orders>('value 1').pay('7')).toBe('7 without a lock');
  });
});

it('a lazy module is not looked at: its methods say at the call what is missing', async () => {
  @Module({ providers: [{ provide: Orders, useFactory: () => new Orders() }] })
  class LazyModule {}
  const app = await start({});
  const lazy = await app.get(LazyModuleLoader).load(() => LazyModule);
  await expect(lazy.get(Orders).pay('7')).rejects.toThrow('Orders has no LockService');
});

it('the providers are looked at once, however many registrations there are', async () => {
  let looked = 0;
  const counted = new Proxy(new PlainOrders(), {
    getPrototypeOf: (target) => {
      looked++;
      return Reflect.getPrototypeOf(target);
    },
  });
  const once = async (registrations: ModuleMetadata['imports']) => {
    const app = await Test.createTestingModule({
      imports: registrations,
      providers: [{ provide: 'counted', useValue: counted }],
    }).compile();
    looked = 0;
    await app.init();
    const times = looked;
    await app.close();
    return times;
  };
  expect(await once([locks, billing])).toBe(await once([locks]));
  expect(await once([locks])).toBeGreaterThan(await once([]));
});

it('the service itself may be provided by a factory', async () => {
  const app = await start({
    providers: [{ provide: 'locks', inject: [LockService], useFactory: (it: LockService) => it }],
  });
  expect(app.get('locks')).toBe(app.get(LockService));
});
