import {
  Controller,
  Get,
  Injectable,
  Param,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
  type Type,
} from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { getLockServiceToken, Locked, LockedInterceptor, LockService, RedisLockModule } from 'nest-redis-lock';
import { concatMap, from, retry, type Observable } from 'rxjs';
import { beforeEach, describe, expect, it } from 'vitest';
import { startApp } from '../support/nest-app.js';

let order: string[];
beforeEach(() => {
  order = [];
});

const note = async (locks: LockService, what: string) =>
  order.push(`${what} ${(await locks.isLocked('order:1')) ? 'locked' : 'unlocked'}`);

/** Like an interceptor that begins a transaction, and commits it when the handler is done. */
function transaction(name: string): Type<NestInterceptor> {
  @Injectable()
  class Transaction implements NestInterceptor {
    constructor(private readonly locks: LockService) {}

    async intercept(_context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
      await note(this.locks, `${name} begins`);
      return next.handle().pipe(concatMap((value) => from(note(this.locks, `${name} commits`).then(() => value))));
    }
  }
  return Transaction;
}

const Transaction = transaction('method');
const Outer = transaction('controller');

/** Asks the handler once more after an error. */
@Injectable()
class Retry implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(retry(1));
  }
}

@Controller()
class Orders {
  calls = 0;
  constructor(private readonly locks: LockService) {}

  @Get('above/:id')
  @Locked('order:{params.id}')
  @UseInterceptors(Transaction)
  async above(@Param('id') _id: string): Promise<void> {
    await note(this.locks, 'handler');
  }

  @Get('below/:id')
  @UseInterceptors(Transaction)
  @Locked('order:{params.id}')
  async below(@Param('id') _id: string): Promise<void> {
    await note(this.locks, 'handler');
  }

  @Get('static')
  @Locked('order:1')
  @UseInterceptors(Transaction)
  async static(): Promise<void> {
    await note(this.locks, 'handler');
  }

  @Get('named-twice/:id')
  @UseInterceptors(LockedInterceptor, Transaction)
  @Locked('order:{params.id}')
  async namedTwice(@Param('id') _id: string): Promise<void> {
    await note(this.locks, 'handler');
  }

  @Get('argument/:id')
  @UseInterceptors(Transaction)
  @Locked('order:{0}')
  async argument(@Param('id') _id: string): Promise<void> {
    await note(this.locks, 'handler');
  }

  @Get('retried-inside/:id')
  @UseInterceptors(Retry)
  @Locked('order:{params.id}')
  async retriedInside(@Param('id') _id: string): Promise<string> {
    await note(this.locks, 'handler');
    if (++this.calls === 1) throw new Error('first call');
    return 'second call';
  }
}

@Controller('outer')
@UseInterceptors(Outer, LockedInterceptor)
class LockedLast extends Orders {
  constructor(locks: LockService) {
    super(locks);
  }
}

@Controller('outer')
@UseInterceptors(LockedInterceptor, Outer)
class LockedFirst extends Orders {
  constructor(locks: LockService) {
    super(locks);
  }
}

@Controller('retried')
@UseInterceptors(Retry)
class RetriedOutside extends Orders {
  @Get('static')
  @Locked('order:1')
  override async static(): Promise<void> {
    await note(this.service, 'handler');
    if (++this.calls === 1) throw new Error('first call');
  }

  @Get(':id')
  @Locked('order:{params.id}')
  async once(@Param('id') _id: string): Promise<void> {
    await this.static();
  }

  constructor(private readonly service: LockService) {
    super(service);
  }
}

const INSIDE = ['method begins locked', 'handler locked', 'method commits locked'];

it.each(['above/1', 'below/1', 'static'])('%s: holds the lock around all interceptors of the method', async (path) => {
  const { url, acquired, locks } = await startApp({ controllers: [Orders] });
  expect((await fetch(`${url}/${path}`)).status).toBe(200);
  expect(order).toEqual(INSIDE);
  expect(acquired).toEqual(['order:1']);
  expect(await locks.isLocked('order:1')).toBe(false);
});

it('takes a lock made of arguments at the call, inside of the interceptors', async () => {
  const { url, acquired } = await startApp({ controllers: [Orders] });
  await fetch(`${url}/argument/1`);
  expect(order).toEqual(['method begins unlocked', 'handler locked', 'method commits unlocked']);
  expect(acquired).toEqual(['order:1']);
});

it('runs inside of the interceptors of the controller', async () => {
  @Controller()
  @UseInterceptors(Outer)
  class Plain extends Orders {
    constructor(locks: LockService) {
      super(locks);
    }
  }
  const { url } = await startApp({ controllers: [Plain] });
  await fetch(`${url}/above/1`);
  expect(order).toEqual(['controller begins unlocked', ...INSIDE, 'controller commits unlocked']);
});

describe('takes the lock once when it is registered', () => {
  it('before another interceptor of the controller, which it then surrounds', async () => {
    const { url, acquired } = await startApp({ controllers: [LockedFirst] });
    await fetch(`${url}/outer/above/1`);
    expect(order).toEqual(['controller begins locked', ...INSIDE, 'controller commits locked']);
    expect(acquired).toEqual(['order:1']);
  });

  it('after another interceptor of the controller', async () => {
    const { url, acquired } = await startApp({ controllers: [LockedLast] });
    await fetch(`${url}/outer/below/1`);
    expect(order).toEqual(['controller begins unlocked', ...INSIDE, 'controller commits unlocked']);
    expect(acquired).toEqual(['order:1']);
  });

  it('at the method, too', async () => {
    const { url, acquired } = await startApp({ controllers: [Orders] });
    await fetch(`${url}/named-twice/1`);
    expect([order, acquired]).toEqual([INSIDE, ['order:1']]);
  });

  it.each([
    ['useClass', { provide: APP_INTERCEPTOR, useClass: LockedInterceptor }],
    ['useExisting', { provide: APP_INTERCEPTOR, useExisting: LockedInterceptor }],
  ])('globally with APP_INTERCEPTOR and %s', async (_form, provider) => {
    const providers = [provider];
    const { url, acquired } = await startApp({ controllers: [LockedLast], providers });
    await fetch(`${url}/outer/above/1`);
    expect(order).toEqual(['controller begins locked', ...INSIDE, 'controller commits locked']);
    expect(acquired).toEqual(['order:1']);
  });
});

it('takes a lock that is not reentrant once when it is registered globally, too', async () => {
  @Controller()
  class Strict {
    @Get(':id')
    @Locked('order:{params.id}', { reentrant: false })
    async run(@Param('id') id: string): Promise<string> {
      return id;
    }
  }
  const { url, acquired } = await startApp({ controllers: [Strict] }, undefined, (app) =>
    app.useGlobalInterceptors(app.get(LockedInterceptor)),
  );
  expect(await (await fetch(`${url}/1`)).text()).toBe('1');
  expect(acquired).toEqual(['order:1']);
});

it('leaves handlers of another registration to the interceptor of that one', async () => {
  @Controller()
  class Billing {
    @Get(':id')
    @Locked('order:{params.id}', { registration: 'billing' })
    async run(@Param('id') id: string): Promise<string> {
      return id;
    }
  }
  const billing = RedisLockModule.forRoot({ memory: true, name: 'billing' });
  const { app, url, acquired } = await startApp({ imports: [billing], controllers: [Billing] }, undefined, (nest) =>
    nest.useGlobalInterceptors(nest.get(LockedInterceptor)),
  );
  let billed = 0;
  app
    .get<LockService>(getLockServiceToken('billing'))
    .events$.subscribe(({ type }) => (billed += Number(type === 'acquired')));
  expect(await (await fetch(`${url}/1`)).text()).toBe('1');
  expect([acquired, billed]).toEqual([[], 1]);
});

it('does not spare other locked methods, called by an interceptor inside, their locks', async () => {
  @Injectable()
  class Audit implements NestInterceptor {
    async intercept(_context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
      await this.write();
      return next.handle();
    }
    @Locked('audit')
    async write(): Promise<void> {}
  }
  @Controller()
  class Audited {
    @Get(':id')
    @UseInterceptors(Audit)
    @Locked('order:{params.id}')
    async run(@Param('id') id: string): Promise<string> {
      return id;
    }
  }
  const { url, acquired } = await startApp({ controllers: [Audited] });
  expect(await (await fetch(`${url}/1`)).text()).toBe('1');
  expect(acquired).toEqual(['order:1', 'audit']);
});

it('keeps the lock for a handler that an interceptor inside calls again', async () => {
  const { url, acquired } = await startApp({ controllers: [Orders] });
  const response = await fetch(`${url}/retried-inside/1`);
  expect([response.status, await response.text()]).toEqual([200, 'second call']);
  expect([order, acquired]).toEqual([['handler locked', 'handler locked'], ['order:1']]);
});

it.each(['retried/static', 'retried/1'])(
  '%s: takes the lock again when an interceptor outside asks again',
  async (path) => {
    const { url, acquired } = await startApp({ controllers: [RetriedOutside] });
    expect((await fetch(`${url}/${path}`)).status).toBe(200);
    expect(order).toEqual(['handler locked', 'handler locked']);
    expect(acquired).toEqual(['order:1', 'order:1']);
  },
);

it('refuses a handler that calls itself for another request key', async () => {
  @Controller()
  class Recursive {
    @Get(':id')
    @Locked('order:{params.id}')
    async run(@Param('id') id: string): Promise<string> {
      return id === '2' ? 'ran without its lock' : this.run('2');
    }
  }
  const { url, log } = await startApp({ controllers: [Recursive] });
  expect((await fetch(`${url}/1`)).status).toBe(500);
  expect(log.lines.join()).toContain('Recursive.run was called without LockedInterceptor');
});
