import { Controller, Get, Inject, Injectable, Param, Scope } from '@nestjs/common';
import { ModuleRef, REQUEST } from '@nestjs/core';
import { Locked } from 'nest-redis-lock';
import { expect, it } from 'vitest';
import { makeApp, startApp } from '../support/nest-app.js';

abstract class Base {
  @Locked('inherited:{0}')
  async inherited(id: string): Promise<string> {
    return `${this.constructor.name} ${id}`;
  }

  @Locked('base:{0}')
  async overridden(id: string): Promise<string> {
    return `base ${id}`;
  }

  @Locked('base:{0}')
  async plain(id: string): Promise<string> {
    return `base ${id}`;
  }

  @Locked('same:{0}')
  async same(id: string): Promise<string> {
    return `base ${id}`;
  }
}

@Injectable()
class Child extends Base {
  @Locked('child:{0}')
  override async overridden(id: string): Promise<string> {
    return `child of ${await super.overridden(id)}`;
  }

  override async plain(id: string): Promise<string> {
    return `child ${id}`;
  }

  @Locked('same:{0}')
  override async same(id: string): Promise<string> {
    return `child of ${await super.same(id)}`;
  }
}

@Injectable()
class Sibling extends Base {}

it('a subclass inherits a locked method, adds a lock of another key to it, and takes one of the same key once', async () => {
  const { app, acquired } = await makeApp({ providers: [Child, Sibling] });
  const child = app.get(Child);
  const calls = [child.inherited('1'), app.get(Sibling).inherited('2'), child.overridden('3'), child.plain('4')];
  expect(await Promise.all([...calls, child.same('5')])).toEqual([
    'Child 1',
    'Sibling 2',
    'child of base 3',
    'child 4',
    'child of base 5',
  ]);
  expect(acquired.sort()).toEqual(['base:3', 'child:3', 'inherited:1', 'inherited:2', 'same:5']);
});

it('a handler of a base controller is locked in each subclass, can be overridden, and is refused when called with super', async () => {
  abstract class Handlers {
    @Get(':id')
    @Locked('base:{params.id}')
    async get(@Param('id') id: string): Promise<string> {
      return `base ${id}`;
    }
  }
  @Controller('first')
  class First extends Handlers {}
  @Controller('overriding')
  class Overriding extends Handlers {
    @Get(':id')
    @Locked('child:{params.id}')
    override async get(@Param('id') id: string): Promise<string> {
      return `child ${id}`;
    }
  }
  @Controller('calling')
  class Calling extends Handlers {
    @Get(':id')
    override async get(@Param('id') id: string): Promise<string> {
      return super.get(id);
    }
  }
  const { url, acquired, log } = await startApp({ controllers: [First, Overriding, Calling] });
  const answers = ['first/1', 'overriding/3'].map(async (path) => (await fetch(`${url}/${path}`)).text());
  expect(await Promise.all(answers)).toEqual(['base 1', 'child 3']);
  expect((await fetch(`${url}/calling/4`)).status).toBe(500);
  expect(log.lines.join()).toContain('Handlers.get was called without LockedInterceptor');
  expect(acquired.sort()).toEqual(['base:1', 'child:3']);
});

it('methods are locked in classes of request and of transient scope, and in those that ModuleRef makes', async () => {
  @Injectable({ scope: Scope.REQUEST })
  class PerRequest {
    constructor(@Inject(REQUEST) private readonly request: { params: { id: string } }) {}

    @Locked('order:{0}')
    async pay(id: string): Promise<string> {
      return `${id} of request ${this.request.params.id}`;
    }
  }
  @Injectable({ scope: Scope.TRANSIENT })
  class Transient {
    @Locked('transient')
    async run(): Promise<this> {
      return this;
    }
  }
  @Controller()
  class Orders {
    constructor(
      private readonly perRequest: PerRequest,
      private readonly transient: Transient,
    ) {}

    @Get(':id')
    @Locked('request:{params.id}')
    async pay(@Param('id') id: string): Promise<string> {
      await this.transient.run();
      return this.perRequest.pay(id);
    }
  }
  const { app, url, acquired } = await startApp({ controllers: [Orders], providers: [PerRequest, Transient] });
  const answers = ['1', '2'].map(async (id) => (await fetch(`${url}/${id}`)).text());
  expect(await Promise.all(answers)).toEqual(['1 of request 1', '2 of request 2']);
  const made = await app.get(ModuleRef).create(Transient);
  expect(await made.run()).toBe(made);
  const each = ['order:1', 'order:2', 'request:1', 'request:2', 'transient', 'transient', 'transient'];
  expect(acquired.sort()).toEqual(each);
});
