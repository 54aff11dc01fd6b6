import { Inject, Injectable, Scope } from '@nestjs/common';
import type { Provider } from '@nestjs/common';
import { REQUEST } from '@nestjs/core';
import {
  LeaderOnly,
  LockOptionsError,
  LockService,
  RedisLockModule,
  type LockEvent,
  WhileLeader,
  type Leadership,
} from 'nest-redis-lock';
import { beforeEach, describe, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { makeApp } from '../support/nest-app.js';
import { untilQueued } from '../support/queue.js';
import { serverOfFile } from '../support/stage.js';
import { until, whenAborted } from '../support/until.js';

const redis = await serverOfFile();
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
    await whenAborted(leadership.signal);
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

  it('a method with @LeaderOnly runs with a handle of its own: releasing it does not resign [G327]', async () => {
    const { app, locks } = await makeApp({ providers: [Ticker] });
    await untilElected(locks);
    expect(await app.get(Ticker).releases()).toBe(true);
    expect(locks.leader('outbox').isLeader).toBe(true);
    expect(await locks.isLocked('outbox')).toBe(true);
  });
});

describe('@WhileLeader', () => {
  it('a method with @WhileLeader is called when the application is elected, with the leadership, and again in each later term [G328]', async () => {
    @Injectable()
    class Named {
      leads = 0;

      @WhileLeader('outbox', { registration: 'other', ttlMs: 5_000 })
      async relay(): Promise<void> {
        this.leads++;
      }
    }
    const { app, locks } = await makeApp({
      imports: [RedisLockModule.forRoot({ memory: true, name: 'other' })],
      providers: [Relay, { provide: 'alias', useExisting: Relay }, Named],
    });
    await until(() => app.get(Named).leads === 1, { what: 'that of another registration is called' });
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
      'PerRequest.tick in RootTestModule is @LeaderOnly, but its class is request-scoped, or injects a request-scoped provider',
    ],
    [
      'that injects the request',
      [OfRequest],
      'OfRequest.relay in RootTestModule is @WhileLeader, but its class is request-scoped',
    ],
    ['of transient scope', [Transient], 'but its class is transient'],
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
