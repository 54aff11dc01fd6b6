import { applyDecorators, Inject, Injectable, Module, Scope, SetMetadata } from '@nestjs/common';
import type { Provider } from '@nestjs/common';
import { LazyModuleLoader, REQUEST } from '@nestjs/core';
import { Cron, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import {
  LeaderOnly,
  Locked,
  LockOptionsError,
  LockService,
  type LockEvent,
  RedisLockModule,
  WhileLeader,
  type Leadership,
} from 'nest-redis-lock';
import { Observable } from 'rxjs';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { makeApp } from '../support/nest-app.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

let redis: RedisServer;
beforeAll(async () => {
  redis = await RedisServer.start();
});
afterAll(() => redis.stop());
beforeEach(async () => {
  await redis.command('FLUSHALL');
});

@Injectable()
class Ticker {
  readonly ran: string[] = [];
  gate?: Gate;
  constructor(readonly locks: LockService) {}

  @LeaderOnly('outbox')
  async tick(name = 'tick'): Promise<string | undefined> {
    this.ran.push(name);
    await this.gate?.opened;
    return `${name} in term ${this.locks.current().fencingToken}`;
  }

  @LeaderOnly('outbox')
  async releases(): Promise<boolean | undefined> {
    return this.locks.current('outbox').release();
  }
}

@Injectable()
class Relay {
  readonly terms: Leadership[] = [];
  ended = 0;
  gate?: Gate;

  @WhileLeader('outbox')
  async relay(leadership: Leadership): Promise<void> {
    this.terms.push(leadership);
    await new Promise((aborted) => leadership.signal.addEventListener('abort', aborted));
    await this.gate?.opened;
    this.ended++;
  }
}

const untilElected = async (locks: LockService, key = 'outbox') => {
  await until(() => locks.leader(key).isLeader, { what: 'the application is elected' });
  return locks.leader(key).term;
};

describe('@LeaderOnly', () => {
  it('a method with @LeaderOnly runs in the application that leads, under its lock, and is skipped in the others [G320]', async () => {
    const first = await makeApp({ providers: [Ticker] }, { redis: redis.url, commandTimeoutMs: 20_000 });
    const term = await untilElected(first.locks);
    const second = await makeApp({ providers: [Ticker] }, { redis: redis.url, commandTimeoutMs: 20_000 });
    await untilQueued(redis, 'outbox', 1);
    expect(await first.app.get(Ticker).tick()).toBe(`tick in term ${term}`);
    expect(await second.app.get(Ticker).tick()).toBeUndefined();
    expect(second.app.get(Ticker).ran).toEqual([]);
  });

  it('a method with @LeaderOnly runs with a handle of its own: one that releases it resigns nothing [G327]', async () => {
    const { app, locks } = await makeApp({ providers: [Ticker] });
    await untilElected(locks);
    expect(await app.get(Ticker).releases()).toBe(true);
    expect(locks.leader('outbox').isLeader).toBe(true);
    expect(await locks.isLocked('outbox')).toBe(true);
  });

  it('@LeaderOnly works with @Cron, in any order, and keeps the metadata of the method', async () => {
    const Noted = SetMetadata('note', 'kept');
    @Injectable()
    class Crons {
      ran = 0;

      @Cron('0 0 1 1 *', { name: 'above' })
      @LeaderOnly('crons')
      @Noted
      async above(): Promise<void> {
        this.ran++;
      }

      @LeaderOnly('crons')
      @Cron('0 0 1 1 *', { name: 'below' })
      async below(): Promise<void> {
        this.ran++;
      }

      @applyDecorators(LeaderOnly('crons'), Noted)
      async composed(): Promise<void> {
        this.ran++;
      }
    }
    const { app, locks } = await makeApp({ imports: [ScheduleModule.forRoot()], providers: [Crons] });
    await untilElected(locks, 'crons');
    const registry = app.get(SchedulerRegistry);
    for (const name of ['above', 'below']) await registry.getCronJob(name).fireOnTick();
    await app.get(Crons).composed();
    expect(app.get(Crons).ran).toBe(3);
    expect(Reflect.getMetadata('note', Crons.prototype.above)).toBe('kept');
    await locks.leader('crons').resign();
    for (const name of ['above', 'below']) await registry.getCronJob(name).fireOnTick();
    expect(app.get(Crons).ran).toBe(3);
  });

  it('a method with @LeaderOnly that is not async runs, with a warning, and one that returns a stream is refused', async () => {
    let subscribed = false;
    @Injectable()
    class Sync {
      @LeaderOnly('sync')
      value(): Promise<number | undefined> {
        return 5 as unknown as Promise<number | undefined>;
      }

      @LeaderOnly('sync')
      stream(): Promise<undefined> {
        return new Observable(() => void (subscribed = true)) as unknown as Promise<undefined>;
      }
    }
    const { app, locks, log } = await makeApp({ providers: [Sync] });
    await untilElected(locks, 'sync');
    expect(await app.get(Sync).value()).toBe(5);
    expect(log.lines).toEqual([expect.stringContaining('Sync.value is @LeaderOnly and returned a plain value.')]);
    await expect(app.get(Sync).stream()).rejects.toThrow('Sync.stream is @LeaderOnly and must return a Promise');
    expect(subscribed).toBe(false);
  });

  it('a method with @LeaderOnly can be locked as well, by another key', async () => {
    @Injectable()
    class Both {
      constructor(readonly locks: LockService) {}

      @LeaderOnly('both')
      @Locked('other')
      async run(): Promise<string | undefined> {
        return [this.locks.current().key, this.locks.current('both').key].join();
      }
    }
    const { app, locks } = await makeApp({ providers: [Both] });
    await untilElected(locks, 'both');
    expect(await app.get(Both).run()).toBe('other,both');
  });
});

describe('@WhileLeader', () => {
  it('a method with @WhileLeader is called when the application is elected, with the leadership, and again in each later term [G328]', async () => {
    const { app, locks } = await makeApp({ providers: [Relay, { provide: 'alias', useExisting: Relay }] });
    const relay = app.get(Relay);
    await until(() => relay.terms.length === 1, { what: 'the method is called' });
    const leader = locks.leader('outbox');
    expect(relay.terms[0]).toMatchObject({ key: 'outbox', term: leader.term, isHeld: true });
    await leader.resign();
    expect(relay.ended).toBe(1);
    await until(() => relay.terms.length === 2, { what: 'the method is called again' });
    expect(relay.terms[1]!.term).toBeGreaterThan(relay.terms[0]!.term);
  });

  it('a method with @WhileLeader that throws is logged, the application resigns, and campaigns again after a pause [G321]', async () => {
    @Injectable()
    class Broken {
      calls: number[] = [];

      @WhileLeader('broken')
      async relay(): Promise<void> {
        this.calls.push(performance.now());
        throw new Error('no connection');
      }
    }
    const { app, log, locks } = await makeApp({ providers: [Broken] });
    const { calls } = app.get(Broken);
    await until(() => calls.length === 1 && !locks.leader('broken').isLeader, { what: 'it has resigned' });
    expect(log.lines).toEqual([
      'error Broken.relay failed as the leader of "broken"; this process resigns, and campaigns again after a pause: ' +
        'Error: no connection',
    ]);
    await until(() => calls.length === 2, { what: 'it is called again' });
    expect(calls[1]! - calls[0]!).toBeGreaterThan(450);
  });

  it('a method with @WhileLeader that ends by the error of its signal is not logged', async () => {
    @Injectable()
    class Throwing {
      ended = 0;

      @WhileLeader('throwing')
      async relay({ signal }: Leadership): Promise<void> {
        await new Promise((aborted) => signal.addEventListener('abort', aborted));
        this.ended++;
        signal.throwIfAborted();
      }
    }
    const { app, log, locks } = await makeApp({ providers: [Throwing] });
    await untilElected(locks, 'throwing');
    await locks.leader('throwing').resign();
    expect(app.get(Throwing).ended).toBe(1);
    expect(log.lines).toEqual([]);
  });
});

describe('an application does not start', () => {
  @Injectable({ scope: Scope.REQUEST })
  class PerRequest {
    @LeaderOnly('outbox')
    async tick(): Promise<void> {}
  }
  @Injectable()
  class OfRequest {
    constructor(@Inject(REQUEST) readonly request: unknown) {}

    @WhileLeader('outbox')
    async relay(): Promise<void> {}
  }
  @Injectable({ scope: Scope.TRANSIENT })
  class Transient {
    @WhileLeader('outbox')
    async relay(): Promise<void> {}
  }
  @Injectable()
  class Shorter {
    @LeaderOnly('outbox', { ttlMs: 1_000 })
    async tick(): Promise<void> {}
  }

  it.each<[what: string, providers: Provider[], message: string]>([
    [
      'of request scope',
      [PerRequest],
      'PerRequest.tick in RootTestModule is @LeaderOnly, but its class is of request scope',
    ],
    [
      'that injects the request',
      [OfRequest],
      'OfRequest.relay in RootTestModule is @WhileLeader, but its class is of requ',
    ],
    ['of transient scope', [Transient], 'but its class is of transient scope'],
    ['that Nest did not make', [{ provide: Relay, useValue: new Relay() }], 'is @WhileLeader, but has no LockService'],
    [
      'whose options differ from those of another',
      [Relay, Shorter],
      'Relay.relay and Shorter.tick take part in the election of "outbox" with ttlMs 15000 and 1000',
    ],
  ])(
    'an application does not start with a leader in a class %s, and begins no election [G322]',
    async (_, providers, message) => {
      const events: LockEvent[] = [];
      const starting = makeApp({ providers }, undefined, (app) =>
        app.get(LockService).events$.subscribe((event) => events.push(event)),
      );
      await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
      await expect(starting).rejects.toThrow(message);
      expect(events).toEqual([]);
    },
  );
});

describe('a class is not defined', () => {
  const defining = (decorate: () => MethodDecorator & ClassDecorator) => () => {
    class Jobs {
      async run(): Promise<void> {}
    }
    decorate()(Jobs.prototype, 'run', Object.getOwnPropertyDescriptor(Jobs.prototype, 'run')!);
  };
  const loose = (key: unknown, options?: unknown) =>
    LeaderOnly(key as string, options as object) as MethodDecorator & ClassDecorator;

  it.each<[what: string, decorator: () => MethodDecorator & ClassDecorator, message: string]>([
    ['a key that is made of arguments', () => loose('outbox:{0}'), 'before there are any calls: got "outbox:{0}"'],
    ['an empty key', () => loose(''), '@LeaderOnly on Jobs.run: the key must be a fixed string like "outbox"'],
    ['a forgotten key', () => loose(undefined), 'before there are any calls: got undefined'],
    [
      'an option that is none',
      () => loose('outbox', { waitMs: 1 }),
      'There is no option "waitMs": expected ttlMs, regi',
    ],
    ['a ttl that is none', () => loose('outbox', { ttlMs: 1 }), 'ttlMs must be a whole number of milliseconds from 20'],
    ['a registration that is none', () => loose('outbox', { registration: '' }), 'must be the name of a registration'],
  ])('a class is not defined with %s', (_, decorator, message) => {
    expect(defining(decorator)).toThrow(LockOptionsError);
    expect(defining(decorator)).toThrow(message);
  });
});

describe('a lazy module', () => {
  it('the first call of a method with @LeaderOnly in a lazy module begins its election', async () => {
    @Module({ providers: [Ticker] })
    class Lazy {}
    const { app, locks } = await makeApp({});
    const module = await app.get(LazyModuleLoader).load(() => Lazy);
    const ticker = module.get(Ticker);
    expect(await ticker.tick()).toBeUndefined();
    const term = await untilElected(locks);
    expect(await ticker.tick()).toBe(`tick in term ${term}`);
  });
});

it('a named registration has elections of its own', async () => {
  @Injectable()
  class Named {
    readonly terms: Leadership[] = [];

    @WhileLeader('outbox', { registration: 'other', ttlMs: 5_000 })
    async relay(leadership: Leadership): Promise<void> {
      this.terms.push(leadership);
    }
  }
  const other = RedisLockModule.forRoot({ memory: true, name: 'other' });
  const { app, locks } = await makeApp({ imports: [other], providers: [Named, Relay] });
  await until(() => app.get(Named).terms.length === 1, { what: 'the method is called' });
  await untilElected(locks);
  expect(app.get(Relay).terms).toHaveLength(1);
});
