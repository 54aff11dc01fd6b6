import { Controller, Get, Injectable, Module, type ModuleMetadata } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  getLockServiceToken,
  InjectLockService,
  Locked,
  LeaderOnly,
  LockService,
  RedisLockModule,
  type RedisLockModuleOptions,
  type RedisLockOptionsFactory,
  WhileLeader,
} from 'nest-redis-lock';
import { describe, expect, it, onTestFinished } from 'vitest';
import { RecordingLogger } from '../support/nest-app.js';

async function compile(metadata: ModuleMetadata): Promise<TestingModule> {
  @Module(metadata)
  class AppModule {}
  const app = await Test.createTestingModule({ imports: [AppModule] })
    .setLogger(new RecordingLogger())
    .compile();
  onTestFinished(() => app.close());
  return app.init();
}

@Injectable()
class Orders {
  constructor(readonly locks: LockService) {}

  @Locked('order:{0}')
  async pay(id: string): Promise<string> {
    return `${id} under ${this.locks.current().key}`;
  }
}

@Injectable()
class Settings {
  readonly ttlMs = 4_321;
}

@Module({ providers: [Settings], exports: [Settings] })
class SettingsModule {}

@Injectable()
class Factory implements RedisLockOptionsFactory {
  constructor(private readonly settings: Settings) {}

  createRedisLockOptions(): RedisLockModuleOptions {
    return { memory: true, ttlMs: this.settings.ttlMs };
  }
}

@Module({ imports: [SettingsModule], providers: [Factory], exports: [Factory] })
class FactoryModule {}

const FORMS = {
  forRoot: RedisLockModule.forRoot({ memory: true, ttlMs: 4_321 }),
  'forRootAsync with useFactory, inject and imports': RedisLockModule.forRootAsync({
    imports: [SettingsModule],
    inject: [Settings],
    useFactory: async (settings: Settings) => ({ memory: true, ttlMs: settings.ttlMs }),
  }),
  'forRootAsync with useClass': RedisLockModule.forRootAsync({ imports: [SettingsModule], useClass: Factory }),
  'forRootAsync with useExisting': RedisLockModule.forRootAsync({ imports: [FactoryModule], useExisting: Factory }),
};

describe.each(Object.entries(FORMS))('%s', (_form, registration) => {
  it('provides the service, with the options, to a module that does not import it', async () => {
    @Module({ providers: [Orders], exports: [Orders] })
    class OrdersModule {}
    const app = await compile({ imports: [registration, OrdersModule] });
    expect(await app.get(Orders).pay('7')).toBe('7 under order:7');
    const remainingMs = await app.get(LockService).withLock('x', (lock) => lock.remainingMs);
    expect(remainingMs).toBeGreaterThan(3_000);
    expect(remainingMs).toBeLessThanOrEqual(4_321);
  });
});

it('provides the service only to those who import a module that is not global', async () => {
  const local = RedisLockModule.forRoot({ memory: true, isGlobal: false });
  @Module({ imports: [local], providers: [Orders] })
  class Inside {}
  const app = await compile({ imports: [Inside] });
  expect(await app.get(Orders).pay('7')).toBe('7 under order:7');

  @Module({ providers: [Orders] })
  class Outside {}
  await expect(compile({ imports: [Inside, Outside] })).rejects.toThrow(
    /LockService at index \[0\].* in the Outside module/,
  );
});

describe('several named registrations', () => {
  @Injectable()
  class Billing {
    constructor(
      @InjectLockService('billing') readonly billing: LockService,
      @InjectLockService() readonly standard: LockService,
    ) {}

    @Locked('same', { registration: 'billing' })
    async bill(): Promise<string[]> {
      return this.held();
    }

    @Locked('same')
    async order(): Promise<string[]> {
      return this.held();
    }

    @Locked('same')
    async both(): Promise<string[]> {
      return this.bill();
    }

    private async held(): Promise<string[]> {
      const names = [];
      if (await this.billing.isLocked('same')) names.push('billing');
      if (await this.standard.isLocked('same')) names.push('standard');
      return names;
    }
  }

  const imports = [
    RedisLockModule.forRoot({ memory: true }),
    RedisLockModule.forRootAsync({ name: 'billing', useFactory: () => ({ memory: true }) }),
  ];

  it('are independent, and each @Locked uses the one it names', async () => {
    const app = await compile({ imports, providers: [Billing] });
    const billing = app.get(Billing);
    expect(billing.billing).not.toBe(billing.standard);
    expect(billing.billing).toBe(app.get(getLockServiceToken('billing')));
    expect([billing.billing.registration, billing.standard.registration]).toEqual(['billing', 'default']);
    expect(await billing.bill()).toEqual(['billing']);
    expect(await billing.order()).toEqual(['standard']);
    expect(await billing.both()).toEqual(['billing', 'standard']);
  });

  it('can do without a default one', async () => {
    @Injectable()
    class OnlyBilling {
      @Locked('x', { registration: 'billing' })
      async run(): Promise<string> {
        return 'ran';
      }
    }
    const app = await compile({ imports: [imports[1]!], providers: [OnlyBilling] });
    expect(await app.get(OnlyBilling).run()).toBe('ran');
  });
});

describe('without the module the application does not start, and the message names it', () => {
  @Injectable()
  class Service {
    @Locked('x')
    async run(): Promise<void> {}
  }
  @Injectable()
  class NamedService {
    @Locked('x', { registration: 'billing' })
    async run(): Promise<void> {}
  }
  @Controller()
  class Handlers {
    @Get()
    @Locked('x')
    async run(): Promise<void> {}
  }

  it('for a service', async () => {
    await expect(compile({ providers: [Service] })).rejects.toThrow(
      /dependencies of the Service\..*"Symbol\(LockService of RedisLockModule\.forRoot\(\)\)"/,
    );
  });

  it('for a registration with another name', async () => {
    const imports = [RedisLockModule.forRoot({ memory: true })];
    await expect(compile({ imports, providers: [NamedService] })).rejects.toThrow(
      /dependencies of the NamedService\..*LockService of RedisLockModule\.forRoot\(\{ name: "billing" \}\)/,
    );
  });

  it('for a service with an election', async () => {
    @Injectable()
    class Leading {
      @LeaderOnly('x')
      async run(): Promise<void> {}
    }
    @Injectable()
    class Relay {
      @WhileLeader('x')
      async run(): Promise<void> {}
    }
    for (const provider of [Leading, Relay]) {
      const name = `"Symbol(LockService of RedisLockModule.forRoot())"`;
      await expect(compile({ providers: [provider] })).rejects.toThrow(name);
    }
  });

  it('for a controller', async () => {
    await expect(compile({ controllers: [Handlers] })).rejects.toThrow(
      'dependencies of the LockedInterceptor (?). Please make sure that the argument LockService at index [0]',
    );
  });
});

it('keeps two applications with the same class apart', async () => {
  const imports = [RedisLockModule.forRoot({ memory: true })];
  const [first, second] = [
    await compile({ imports, providers: [Orders] }),
    await compile({ imports, providers: [Orders] }),
  ];
  await first.get(LockService).withLock('order:7', async () => {
    expect(await second.get(Orders).pay('7')).toBe('7 under order:7');
  });
  await first.close();
  expect(await second.get(Orders).pay('8')).toBe('8 under order:8');
});
