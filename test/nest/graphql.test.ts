import { Injectable, UseGuards, type CanActivate, type ExecutionContext } from '@nestjs/common';
import {
  Args,
  Field,
  GqlExecutionContext,
  Mutation,
  ObjectType,
  Query,
  ResolveField,
  Resolver,
  type GqlModuleOptions,
} from '@nestjs/graphql';
import type { ExecutionResult } from 'graphql';
import { fromContext, Locked, LockService } from 'nest-redis-lock';
import { expect, it } from 'vitest';
import { execute, graphQLModule } from '../support/graphql.js';
import { makeApp, type TestApp } from '../support/nest-app.js';

@Injectable()
class SetsUser implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    GqlExecutionContext.create(context).getContext<{ req: { user?: object } }>().req.user = { id: 'ada' };
    return true;
  }
}

@Resolver()
class Orders {
  constructor(private readonly locks: LockService) {}

  @Query(() => String)
  async needed(): Promise<string> {
    return 'a schema has to have a query';
  }

  @Mutation(() => String)
  @Locked('order:{args.order}', { waitMs: 0 })
  async above(@Args('order') _order: string): Promise<string> {
    return this.locks.current().key;
  }

  @Locked('order:{args.order}')
  @Mutation(() => String)
  async below(@Args('order') _order: string): Promise<string> {
    return this.locks.current().key;
  }

  @Mutation(() => String)
  @UseGuards(SetsUser)
  @Locked('{headers.x-tenant}:{user.id}')
  async ofRequest(): Promise<string> {
    return this.locks.current().key;
  }

  @Mutation(() => String)
  @Locked(fromContext((context) => GqlExecutionContext.create(context).getInfo<{ fieldName: string }>().fieldName))
  async ofContext(): Promise<string> {
    return this.locks.current().key;
  }

  @Mutation(() => String)
  @Locked('argument:{0}')
  async ofArgument(@Args('order') _order: string): Promise<string> {
    return this.locks.current().key;
  }

  @Mutation(() => String, { nullable: true })
  @Locked('order:{args.order}')
  async missing(@Args('order', { nullable: true }) _order?: string): Promise<string> {
    return 'ran';
  }
}

@ObjectType()
class Shop {
  @Field()
  name!: string;
}

@Resolver(() => Shop)
class Fields {
  constructor(private readonly locks: LockService) {}

  @Mutation(() => Shop)
  async shop(): Promise<Shop> {
    return { name: 'corner' };
  }

  @ResolveField(() => String)
  @Locked('stock:{args.sku}')
  async stock(@Args('sku') _sku: string): Promise<string> {
    return this.locks.current().key;
  }
}

async function serve(
  options: Partial<GqlModuleOptions> = {},
): Promise<TestApp & { mutate: (mutation: string) => Promise<ExecutionResult> }> {
  const test = await makeApp({
    imports: [graphQLModule(options)],
    providers: [Orders, Fields],
  });
  const contextValue = { req: { headers: { 'x-tenant': 'acme' } } };
  return { ...test, mutate: (mutation) => execute(test.app, `mutation { ${mutation} }`, contextValue) };
}

it.each([
  ['above(order: "1:a")', 'order:1%3Aa'],
  ['below(order: "2")', 'order:2'],
  ['ofRequest', 'acme:ada'],
  ['ofContext', 'ofContext'],
  ['ofArgument(order: "3")', 'argument:3'],
])('locks the resolver %s', async (mutation, key) => {
  const { mutate, acquired } = await serve();
  const result = await mutate(mutation);
  expect(result.errors).toBeUndefined();
  expect(Object.values(result.data!)).toEqual([key]);
  expect(acquired).toEqual([key]);
});

it('fails, without running, when the lock is held or a part of the key is missing', async () => {
  const { mutate, locks, acquired } = await serve();
  await using _held = await locks.acquire('order:1');
  const busy = await mutate('above(order: "1")');
  expect(busy.errors?.[0]?.originalError).toMatchObject({ code: 'LOCK_CONTENDED', status: 409 });
  const missing = await mutate('missing');
  expect(missing.errors?.[0]?.originalError).toMatchObject({ code: 'LOCK_KEY', status: 400 });
  expect([missing.data, acquired]).toEqual([{ missing: null }, ['order:1']]);
});

it('locks a field resolver for which interceptors are turned on, and refuses it where they are not', async () => {
  const on = await serve({ fieldResolverEnhancers: ['interceptors'] });
  expect((await on.mutate('shop { stock(sku: "1") }')).data).toEqual({ shop: { stock: 'stock:1' } });
  expect(on.acquired).toEqual(['stock:1']);

  const off = await serve();
  const { errors } = await off.mutate('shop { stock(sku: "1") }');
  expect(errors?.[0]?.message).toContain('needs fieldResolverEnhancers: ["interceptors"]');
  expect(off.acquired).toEqual([]);
});
