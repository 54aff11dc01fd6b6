import {
  Controller,
  Get,
  Inject,
  Injectable,
  Param,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
  type Provider,
  type Type,
} from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { getLockServiceToken, Locked, LockedInterceptor, LockService, RedisLockModule } from 'nest-redis-lock';
import { concatMap, from, retry, type Observable } from 'rxjs';
import { beforeEach, expect, it } from 'vitest';
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

const [Transaction, Outer] = [transaction('method'), transaction('controller')];

/** A controller with these interceptors. */
function controller(...interceptors: Type<NestInterceptor>[]): Type {
  @Controller()
  @UseInterceptors(...interceptors)
  class Orders {
    constructor(@Inject(LockService) private readonly locks: LockService) {}

    @Get('above/:id')
    @Locked('order:{params.id}')
    @UseInterceptors(Transaction)
    async above(): Promise<void> {
      await note(this.locks, 'handler');
    }

    @Get('below/:id')
    @UseInterceptors(Transaction)
    @Locked('order:{params.id}', { reentrant: false })
    async below(): Promise<void> {
      await note(this.locks, 'handler');
    }

    @Get('argument/:id')
    @UseInterceptors(Transaction)
    @Locked('order:{0}')
    async argument(@Param('id') _id: string): Promise<void> {
      await note(this.locks, 'handler');
    }
  }
  return Orders;
}

const HELD = ['method begins locked', 'handler locked', 'method commits locked'];
const AT_CALL = ['method begins unlocked', 'handler locked', 'method commits unlocked'];
const inside = (how: string, of: string[]) => [`controller begins ${how}`, ...of, `controller commits ${how}`];

it.each<[what: string, of: Type, path: string, expected: string[], providers?: Provider[]]>([
  ['a method, with @Locked above', controller(), 'above/1', HELD],
  ['a method, with @Locked below', controller(), 'below/1', HELD],
  ['a method with a key of arguments: inside of them', controller(), 'argument/1', AT_CALL],
  ['a method, inside of that of the controller', controller(Outer), 'above/1', inside('unlocked', HELD)],
  ['a controller behind LockedInterceptor', controller(LockedInterceptor, Outer), 'below/1', inside('locked', HELD)],
  ['a controller before it', controller(Outer, LockedInterceptor), 'above/1', inside('unlocked', HELD)],
  [
    'a controller, where LockedInterceptor is global',
    controller(Outer, LockedInterceptor),
    'below/1',
    inside('locked', HELD),
    [{ provide: APP_INTERCEPTOR, useExisting: LockedInterceptor }],
  ],
])('the lock of a handler is held once, around the interceptors of %s', async (_, of, path, expected, providers) => {
  const { url, acquired, locks } = await startApp({ controllers: [of], providers });
  expect((await fetch(`${url}/${path}`)).status).toBe(200);
  expect(order).toEqual(expected);
  expect(acquired).toEqual(['order:1']);
  expect(await locks.isLocked('order:1')).toBe(false);
});

/** Calls the handler again after an error. */
class Retries implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(retry(1));
  }
}

class Audits implements NestInterceptor {
  @Locked('audit')
  async write(): Promise<void> {}

  async intercept(_context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    await this.write();
    return next.handle();
  }
}

@Controller()
class Handlers {
  calls = 0;

  @Get('retried/:id')
  @UseInterceptors(Retries)
  @Locked('{params.id}')
  async retried(): Promise<string> {
    return this.fail();
  }

  @Get('failing/:id')
  @Locked('{params.id}')
  async failing(): Promise<string> {
    return this.fail();
  }

  private fail(): string {
    if (++this.calls === 1) throw new Error('first call');
    return 'second call';
  }

  @Get('audited/:id')
  @UseInterceptors(Audits)
  @Locked('{params.id}')
  async audited(): Promise<void> {}

  @Get('recursive/:id')
  @Locked('{params.id}')
  async recursive(@Param('id') id: string): Promise<string> {
    return id === '2' ? 'ran without its lock' : this.recursive('2');
  }

  @Get('billing/:id')
  @Locked('{params.id}', { registration: 'billing' })
  async billing(): Promise<void> {}
}

@Controller('outside')
@UseInterceptors(Retries)
class RetriedOutside extends Handlers {}

it.each([
  ['retried/1', true, 200, ['1']],
  ['outside/failing/1', true, 200, ['1']],
  ['outside/failing/1', false, 200, ['1', '1']],
  ['audited/1', true, 200, ['1', 'audit']],
  ['recursive/1', true, 500, ['1']],
  ['billing/1', true, 200, ['billing 1']],
])(
  'a handler that is called again, or calls others, has the locks that it needs: %s, with a global interceptor %s',
  async (path, isGlobal, status, keys) => {
    const { app, url, acquired } = await startApp(
      {
        controllers: [Handlers, RetriedOutside],
        imports: [RedisLockModule.forRoot({ memory: true, name: 'billing' })],
      },
      undefined,
      (nest) => isGlobal && nest.useGlobalInterceptors(nest.get(LockedInterceptor)),
    );
    const billing = app.get<LockService>(getLockServiceToken('billing'));
    billing.events$.subscribe((event) => event.type === 'acquired' && acquired.push(`billing ${event.key}`));
    expect((await fetch(`${url}/${path}`)).status).toBe(status);
    expect(acquired).toEqual(keys);
  },
);
