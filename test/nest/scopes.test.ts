import { Controller, Get, Inject, Injectable, Param, Scope } from '@nestjs/common';
import { ModuleRef, REQUEST } from '@nestjs/core';
import { Locked } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { makeApp, startApp } from '../support/nest-app.js';

abstract class Base {
  readonly ran: string[] = [];

  @Locked('inherited:{0}')
  async inherited(id: string): Promise<string> {
    this.ran.push(`${this.constructor.name} ${id}`);
    return this.ran.join();
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

  @Locked('own')
  async own(): Promise<string> {
    return 'own';
  }
}

@Injectable()
class Sibling extends Base {}

describe('a subclass', () => {
  it('inherits a locked method', async () => {
    const { app, acquired } = await makeApp({ providers: [Child, Sibling] });
    expect(await app.get(Child).inherited('1')).toBe('Child 1');
    expect(await app.get(Sibling).inherited('1')).toBe('Sibling 1');
    expect(await app.get(Child).own()).toBe('own');
    expect(acquired).toEqual(['inherited:1', 'inherited:1', 'own']);
  });

  it('that overrides it with @Locked and calls super takes both locks', async () => {
    const { app, acquired } = await makeApp({ providers: [Child] });
    expect(await app.get(Child).overridden('1')).toBe('child of base 1');
    expect(acquired).toEqual(['child:1', 'base:1']);
  });

  it('that overrides it with the same key and calls super takes the lock once', async () => {
    const { app, acquired } = await makeApp({ providers: [Child] });
    expect(await app.get(Child).same('1')).toBe('child of base 1');
    expect(acquired).toEqual(['same:1']);
  });

  it('that overrides it without @Locked takes none', async () => {
    const { app, acquired } = await makeApp({ providers: [Child] });
    expect(await app.get(Child).plain('1')).toBe('child 1');
    expect(acquired).toEqual([]);
  });
});

describe('a handler of a base controller', () => {
  abstract class Handlers {
    @Get(':id')
    @Locked('base:{params.id}')
    async get(@Param('id') id: string): Promise<string> {
      return `base ${id}`;
    }
  }

  it('is locked in each controller that inherits it', async () => {
    @Controller('a')
    class First extends Handlers {}
    @Controller('b')
    class Second extends Handlers {}
    const { url, acquired } = await startApp({ controllers: [First, Second] });
    expect(await (await fetch(`${url}/a/1`)).text()).toBe('base 1');
    expect(await (await fetch(`${url}/b/2`)).text()).toBe('base 2');
    expect(acquired).toEqual(['base:1', 'base:2']);
  });

  it('can be overridden with another lock', async () => {
    @Controller()
    class Overriding extends Handlers {
      @Get(':id')
      @Locked('child:{params.id}')
      override async get(@Param('id') id: string): Promise<string> {
        return `child ${id}`;
      }
    }
    const { url, acquired } = await startApp({ controllers: [Overriding] });
    expect(await (await fetch(`${url}/1`)).text()).toBe('child 1');
    expect(acquired).toEqual(['child:1']);
  });

  it('is refused when super is called, since its lock is made of a request', async () => {
    @Controller()
    class Calling extends Handlers {
      @Get(':id')
      override async get(@Param('id') id: string): Promise<string> {
        return super.get(id);
      }
    }
    const { url, acquired, log } = await startApp({ controllers: [Calling] });
    expect((await fetch(`${url}/1`)).status).toBe(500);
    expect(log.lines.join()).toContain('Handlers.get was called without LockedInterceptor');
    expect(acquired).toEqual([]);
  });
});

describe('scopes', () => {
  @Injectable({ scope: Scope.REQUEST })
  class PerRequest {
    constructor(@Inject(REQUEST) private readonly request: { params: { id: string } }) {}

    @Locked('order:{0}')
    async pay(id: string): Promise<string> {
      return `${id} of request ${this.request.params.id}`;
    }
  }

  @Controller()
  class Orders {
    constructor(private readonly perRequest: PerRequest) {}

    @Get(':id')
    @Locked('request:{params.id}')
    async pay(@Param('id') id: string): Promise<string> {
      return this.perRequest.pay(id);
    }
  }

  let made = 0;
  @Injectable({ scope: Scope.TRANSIENT })
  class Transient {
    readonly number = ++made;

    @Locked('transient')
    async run(): Promise<number> {
      return this.number;
    }
  }

  @Injectable()
  class Two {
    constructor(
      readonly first: Transient,
      @Inject('second') readonly second: Transient,
    ) {}
  }

  it('locks methods and handlers of request-scoped classes', async () => {
    const { url, acquired } = await startApp({ controllers: [Orders], providers: [PerRequest] });
    expect(await Promise.all(['1', '2'].map(async (id) => (await fetch(`${url}/${id}`)).text()))).toEqual([
      '1 of request 1',
      '2 of request 2',
    ]);
    expect(acquired.sort()).toEqual(['order:1', 'order:2', 'request:1', 'request:2']);
  });

  it('locks methods of each transient instance', async () => {
    const { app, acquired } = await makeApp({
      providers: [Transient, Two, { provide: 'second', useClass: Transient, scope: Scope.TRANSIENT }],
    });
    const { first, second } = app.get(Two);
    expect(first).not.toBe(second);
    expect(await Promise.all([first.run(), second.run()])).toEqual([first.number, second.number]);
    expect(acquired).toEqual(['transient', 'transient']);
  });

  it('locks methods of an instance that ModuleRef made', async () => {
    class Loose {
      @Locked('loose')
      async run(): Promise<string> {
        return 'ran';
      }
    }
    const { app, acquired } = await makeApp({});
    const loose = await app.get(ModuleRef).create(Loose);
    expect([await loose.run(), acquired]).toEqual(['ran', ['loose']]);
  });
});
