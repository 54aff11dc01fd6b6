import { Injectable, Module, type ModuleMetadata, type Provider } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { Locked, LockOptionsError, RedisLockModule } from 'nest-redis-lock';
import { expect, it, onTestFinished } from 'vitest';
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
