import { Body, Controller, Get, Injectable, Post, Query, type INestApplication, type Type } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { Fenced, FENCE_STORE, FencingToken, LockExceptionFilter, Locked, LockOptionsError } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { makeApp, post, startApp } from '../support/nest-app.js';

/** A controller with one handler, whose key is made from `{params.id}` by default. */
function controller(controllerPath: string | string[], path: string | string[], key = 'order:{params.id}'): Type {
  @Controller(controllerPath)
  class Orders {
    @Get(path)
    @Locked(key)
    async find(): Promise<void> {}
  }
  return Orders;
}

const start = (of: Type, configure?: (app: INestApplication) => unknown) =>
  makeApp({ controllers: [of] }, { memory: true }, configure);

describe('a part of the key that is a parameter of the route', () => {
  it('an application does not start when a key names a parameter that its route does not have [G552]', async () => {
    const starting = start(controller('orders', ':id/items/:item', 'order:{params.idd}'));
    await expect(starting).rejects.toThrow(LockOptionsError);
    await expect(starting).rejects.toThrow(
      'Orders.find in RootTestModule is @Locked with the key "order:{params.idd}", but its route /orders/:id/items/:item has no parameter ' +
        '"idd". It has "id", "item".',
    );
  });

  it.each<[decorator: string, key: string, decorate: MethodDecorator | ParameterDecorator]>([
    ['@Locked', 'item:{params.idd}', Locked(['all', 'order:{params.id}', 'item:{params.idd}']) as MethodDecorator],
    ['@Fenced', 'order:{params.ID}', Fenced('order:{params.ID}')],
    ['@FencingToken', 'order:{params.ID}', FencingToken('order:{params.ID}')],
  ])(
    'an application does not start when %s with the key %s names a parameter that is not there',
    async (decorator, key, decorate) => {
      @Controller('orders')
      class Orders {
        @Post(':id')
        async write(_token: number): Promise<void> {}
      }
      const parts = [Orders.prototype, 'write', Object.getOwnPropertyDescriptor(Orders.prototype, 'write')!] as const;
      if (decorator === '@FencingToken') (decorate as ParameterDecorator)(parts[0], parts[1], 0);
      else Object.defineProperty(parts[0], parts[1], (decorate as MethodDecorator)(...parts) ?? parts[2]);
      const providers = [{ provide: FENCE_STORE, useValue: { raise: async () => true } }];
      await expect(makeApp({ controllers: [Orders], providers })).rejects.toThrow(
        `Orders.write in RootTestModule is ${decorator} with the key "${key}", but its route /orders/:id has no parameter`,
      );
    },
  );

  it('an application does not start when a route without any parameter has a key made from one', async () => {
    await expect(start(controller('orders', []))).rejects.toThrow('no parameter "id"');
    await expect(start(controller('orders', ''))).rejects.toThrow(
      'its route /orders has no parameter "id". It has none.',
    );
    await expect(start(controller(['orders', 'bills'], ['a', 'b']))).rejects.toThrow(
      'its routes /orders/a, /orders/b, /bills/a, /bills/b have no parameter "id". They have none.',
    );
  });

  it.each<[what: string, of: Type, configure?: (app: INestApplication) => unknown]>([
    ['of the handler', controller('orders', ':id')],
    ['of the controller', controller('orders/:id', 'items')],
    ['of one of several paths', controller(['orders', 'orders/:id'], ['', 'x'])],
    ['next to others in one part', controller('orders', 'v:version-:id.json')],
    ['that is optional', controller('orders', '{:id}')],
    ['of the global prefix', controller('orders', ''), (app) => app.setGlobalPrefix('tenants/:id')],
    ['of a path with a wildcard, whose names are not known here', controller('files', '*id')],
  ])('an application starts with a key made from a parameter %s', async (_, of, configure) => {
    await expect(start(of, configure)).resolves.toBeDefined();
  });
});

describe('a key of the request', () => {
  it.each(['params.id', 'body.id', 'query.id', 'headers.x-id', 'user.id', 'data.id', 'args.id'])(
    'an application does not start with a key of {%s} on a plain service [G553]',
    async (part) => {
      @Injectable()
      class Orders {
        @Locked(`order:{${part}}`)
        async pay(): Promise<void> {}
      }
      const providers = [
        Orders,
        { provide: 'value', useValue: new Orders() },
        { provide: 'made', useFactory: () => new Orders() },
      ];
      for (const provider of providers) {
        const starting = makeApp({ providers: [provider] });
        await expect(starting).rejects.toThrow(LockOptionsError);
        await expect(starting).rejects.toThrow(
          `Orders.pay in RootTestModule is @Locked with the key "order:{${part}}", which is made from the request, but the ` +
            'method is not a handler',
        );
      }
    },
  );

  it('the first request without a part of the key is logged as a warning, once for each part [G554]', async () => {
    @Controller('orders')
    class Orders {
      @Post()
      @Locked(['order:{body.idd}', 'shop:{query.shop}'])
      async create(@Body() body: { idd?: string }, @Query('shop') _shop?: string): Promise<string> {
        return body.idd!;
      }
    }
    const { url, log } = await startApp({ controllers: [Orders] });
    const warnings = () => log.lines.filter((line) => line.startsWith('warn '));
    for (const id of [1, 2]) expect((await post(`${url}/orders`, { id })).status).toBe(400);
    expect(warnings()).toEqual([
      'warn @Locked on Orders.create: the key "order:{body.idd}" cannot be built: {body.idd} is not in the request. The ' +
        'method did not run. If no request has {body.idd}, correct the key. Further requests ' +
        'without it are not logged here.',
    ]);
    expect((await post(`${url}/orders`, { idd: 7 })).status).toBe(400);
    expect(warnings().slice(1)).toEqual([expect.stringContaining('{query.shop} is not in the request')]);
    expect(await (await post(`${url}/orders?shop=1`, { idd: 7 })).text()).toBe('7');
    expect(warnings()).toHaveLength(2);
  });

  it('a filter logs requests without a part of the key at debug, in addition to the one warning about it [G618]', async () => {
    @Controller('orders')
    class Orders {
      @Post()
      @Locked('order:{user.id}')
      async create(): Promise<void> {}
    }
    const { url, log } = await startApp({
      controllers: [Orders],
      providers: [{ provide: APP_FILTER, useClass: LockExceptionFilter }],
    });
    for (const _ of [1, 2, 3]) expect((await post(`${url}/orders`, {})).status).toBe(400);
    expect(log.lines).toEqual([expect.stringMatching(/^warn .*: \{user\.id\} is not in the request\. /)]);
    expect(log.debugged.filter((line) => line.includes('{user.id} is not in the request'))).toHaveLength(3);
  });
});
