import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { generate, modulesOf, modulesOfDocs, SKILLS, STOCK } from '../readme/compile.js';
import { diagnosticsIn } from '../support/diagnostics.js';

/** Mistakes, one in each line, each with the text of its single error. */
const mistakesIn = (text: string) =>
  text
    .trim()
    .split('\n')
    .map((line, index) => [...(line.split(' // ') as [code: string, message: string]), index] as const);

/**
 * Compiles lines between a head and an end.
 * @returns the errors of a line, and the errors after all of them
 */
async function compile(name: string, head: string, lines: string[], end: string) {
  const first = head.split('\n').length + 1;
  const said = await diagnosticsIn([generate(name, [head, ...lines, end].join('\n'))]);
  return {
    of: (index: number) => said.filter(({ line }) => line === first + index).map(({ message }) => message),
    behind: said.filter(({ line }) => line >= first + lines.length),
  };
}

const HEAD = `
import { applyDecorators, SetMetadata, type ExecutionContext } from '@nestjs/common';
import { fromContext, LeaderOnly, Limited, Locked, WhileLeader, type Leadership } from 'nest-redis-lock';
import { LockedCron } from 'nest-redis-lock/schedule';
import type { Observable } from 'rxjs';
import { PayOrder, Receipt } from '../../support/pay-order.js';
import { type Receipt as Inline } from '../../support/pay-order.js';
import type { Receipt as Typed } from '../../support/pay-order.js';
declare const prefix: string;
declare const anyText: string;
declare const eitherText: 'order:{0}' | 'order:{params.id}';
interface Order { id: string }
export class Examples {
`;

/** On a method. */
const MISTAKES = mistakesIn(`
@Locked('x', { ttl: 5_000 }) async m(): Promise<number> { return 1; } // 'ttl' does not exist in type 'LockedOptions<
@Locked('x:{0}', { ttl: 5_000 }) async m(_id: string): Promise<number> { return 1; } // 'ttl' does not exist in type 'LockedOptions<
@Locked('x:{params.id}', { ttl: 5_000 }) async m(_id: string): Promise<number> { return 1; } // 'ttl' does not exist in type 'LockedOptions<
@Locked(fromContext(() => 'x'), { ttl: 5_000 }) async m(_id: string): Promise<number> { return 1; } // 'ttl' does not exist in type 'LockedOptions<
@Locked((id: string) => id, { ttl: 5_000 }) async m(_id: string): Promise<number> { return 1; } // 'ttl' does not exist in type 'LockedOptions<
@Locked('x', { onContended: () => 5, ttl: 5_000 }) async m(): Promise<number> { return 1; } // 'ttl' does not exist in type 'LockedOptions<
@Locked('x', { onContended: 'skip', ttl: 5_000 }) async m(): Promise<void> {} // 'ttl' does not exist in type 'LockedOptions<
@Locked('x', { waitms: 5 }) async m(): Promise<number> { return 1; } // Did you mean to write 'waitMs'?
@Locked('x', { ttlMs: '5s' }) async m(): Promise<number> { return 1; } // 'string' is not assignable to type 'number'
@Locked('x', { onLost: 'skip' }) async m(): Promise<number> { return 1; } // '"skip"' is not assignable to type
@Locked('x', { onContended: 'ignore' }) async m(): Promise<number> { return 1; } // '"ignore"' is not assignable to type
@Locked('x', { signal: AbortSignal.abort() }) async m(): Promise<number> { return 1; } // 'signal' does not exist
@Locked() async m(): Promise<number> { return 1; } // Expected 1-2 arguments, but got 0
@Locked(5) async m(): Promise<number> { return 1; } // Argument of type 'number' is not assignable
@Locked((id: number) => id) async m(_id: number): Promise<number> { return 1; } // Type 'number' is not assignable to type 'string | readonly string[]'
@Locked((id: number) => [id]) async m(_id: number): Promise<number> { return 1; } // Type 'number' is not assignable to type 'string'
@Locked(async (id: string) => id) async m(_id: string): Promise<number> { return 1; } // Type 'Promise<string>' is not assignable to type 'string | readonly string[]'
@Locked((order) => order.nope) async m(_order: Order): Promise<number> { return 1; } // Property 'nope' does not exist on type 'Order'
@Locked((id: number) => String(id)) async m(_id: string): Promise<number> { return 1; } // the key function takes other parameters than the method
@Locked((id: 5) => String(id)) async m(_id: number): Promise<number> { return 1; } // the key function takes other parameters than the method
@Locked((id: number) => String(id), { onContended: 'skip' }) async m(_id: string): Promise<void> {} // the key function takes other parameters than the method
@Locked('x:{3}') async m(_id: string): Promise<number> { return 1; } // the method has no parameter for {3} of the key
@Locked('x:{0}:{1.id}:all') async m(_id: string): Promise<number> { return 1; } // the method has no parameter for {1} of the key
@Locked(\`\${prefix}:{3}\`) async m(_id: string): Promise<number> { return 1; } // the method has no parameter for {3} of the key
@Locked('x:{0.idd}') async m(_order: Order): Promise<number> { return 1; } // the parameter has no property for {0.idd} of the key
@Locked('x:{0.idd.x}') async m(_order: Order | undefined): Promise<number> { return 1; } // the parameter has no property for {0.idd.x} of the key
@Locked('x:{0.id}') async m(_id: string): Promise<number> { return 1; } // the parameter has no property for {0.id} of the key
@Locked('x:{0.idd}') async m<T extends Order>(_order: T): Promise<number> { return 1; } // the parameter has no property for {0.idd} of the key
@Locked(['x', 'y:{1.idd}']) async m(_id: string, _order: Order): Promise<number> { return 1; } // the parameter has no property for {1.idd} of the key
@Locked('x:{0.idd}:{3}') async m(_order: Order): Promise<number> { return 1; } // the method has no parameter for {3} of the key
@Limited('x:{0.idd}', { limit: 5 }) async m(_order: Order): Promise<number> { return 1; } // the parameter has no property for {0.idd} of the key
@Locked('x:{0}', { onContended: 'skip' }) async m(): Promise<void> {} // the method has no parameter for {0} of the key
@Locked('x', { onContended: 'skip' }) async m(): Promise<number> { return 1; } // a skipped call returns undefined
@Locked('x', { onContended: () => 5 }) async m(): Promise<string> { return ''; } // onContended returns another type than the method
@Locked('x', { onContended: (id: number) => id }) async m(_id: string): Promise<number> { return 1; } // onContended takes other parameters than the method
@Locked('x:{0}', { onContended: (context: ExecutionContext) => context.getType() }) async m(_id: string): Promise<string> { return ''; } // onContended takes other parameters than the method
@Locked('x:{params.id}', { onContended: (id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'ExecutionContext' is not assignable to type 'string'
@Locked(prefix, { onContended: (id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'ExecutionContext' is not assignable to type 'string'
@Locked(['x', 5]) async m(): Promise<number> { return 1; } // Type 'number' is not assignable to type 'string'
@Locked(['x'], { ttl: 5_000 }) async m(): Promise<number> { return 1; } // 'ttl' does not exist in type 'LockedOptions<
@Locked(['x:{0}', (id: string) => id]) async m(_id: string): Promise<number> { return 1; } // Type '(id: string) => string' is not assignable to type 'string'
@Locked([fromContext(() => 'x')]) async m(): Promise<number> { return 1; } // Type 'ContextKey<"x">' is not assignable to type 'string'
@Locked(['x:{0}', 'y:{3}']) async m(_id: string): Promise<number> { return 1; } // the method has no parameter for {3} of the key
@Locked((id: number) => [String(id)]) async m(_id: string): Promise<number> { return 1; } // the key function takes other parameters than the method
@Locked(['x', 'y'], { onContended: 'skip' }) async m(): Promise<number> { return 1; } // a skipped call returns undefined
@Locked(['x', 'y:{0}'], { onContended: (id: number) => id }) async m(_id: string): Promise<number> { return 1; } // onContended takes other parameters than the method
@Locked(['x', 'y:{params.id}'], { onContended: (id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'ExecutionContext' is not assignable to type 'string'
@Locked('x', { holdMs: '5s' }) async m(): Promise<number> { return 1; } // 'string' is not assignable to type 'number'
@Locked('x', { maxHoldMs: '5s' }) async m(): Promise<number> { return 1; } // 'string' is not assignable to type 'number'
@Limited('x') async m(): Promise<number> { return 1; } // Expected 2 arguments, but got 1
@Limited('x', {}) async m(): Promise<number> { return 1; } // Argument of type '{}' is not assignable to parameter of type 'LimitedOptions<
@Limited('x', { waitMs: 5 }) async m(): Promise<number> { return 1; } // Property 'limit' is missing in type
@Limited('x', { policy: 5 }) async m(): Promise<number> { return 1; } // 'number' is not assignable to type 'string'
@Limited('x', { policy: 'x', onUnavailable: 'skip' }) async m(): Promise<number> { return 1; } // a skipped call returns undefined
@Limited('x', { policy: 'x', holdMs: 5 }) async m(): Promise<number> { return 1; } // 'holdMs' does not exist in type 'LimitedOptions<
@Locked('x', { policy: 5 }) async m(): Promise<number> { return 1; } // 'number' is not assignable to type 'string'
@Locked('x', { onUnavailable: 'ignore' }) async m(): Promise<number> { return 1; } // '"ignore"' is not assignable to type
@Locked('x', { onUnavailable: 'skip' }) async m(): Promise<number> { return 1; } // a skipped call returns undefined
@Locked('x', { onContended: 'throw', onUnavailable: 'skip' }) async m(): Promise<number> { return 1; } // a skipped call returns undefined
@Locked('x', { onContended: 'skip', onUnavailable: 'skip' }) async m(): Promise<number> { return 1; } // a skipped call returns undefined
@Locked('x', { onUnavailable: () => 5 }) async m(): Promise<string> { return ''; } // onUnavailable returns another type than the method
@Locked('x', { onUnavailable: (id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'LockUnavailableError' is not assignable to type 'string'
@Locked('x', { onUnavailable: (_error, id: number) => id }) async m(_id: string): Promise<number> { return 1; } // onUnavailable takes other parameters than the method
@Locked('x:{params.id}', { onUnavailable: (_error, id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'ExecutionContext' is not assignable to type 'string'
@Locked(prefix, { onUnavailable: (_error, id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'unknown' is not assignable to type 'string'
@Limited('x', { limits: 5 }) async m(): Promise<number> { return 1; } // Did you mean to write 'limit'?
@Limited('x', { limit: '5' }) async m(): Promise<number> { return 1; } // 'string' is not assignable to type 'number'
@Limited('x', { limit: 5, ttl: 5_000 }) async m(): Promise<number> { return 1; } // 'ttl' does not exist in type 'LimitedOptions<
@Limited('x', { limit: 5, holdMs: 5_000 }) async m(): Promise<number> { return 1; } // 'holdMs' does not exist in type 'LimitedOptions<
@Limited('x', { limit: 5, signal: AbortSignal.abort() }) async m(): Promise<number> { return 1; } // 'signal' does not exist
@Limited(5, { limit: 5 }) async m(): Promise<number> { return 1; } // Argument of type 'number' is not assignable
@Limited(['x', 'y'], { limit: 5 }) async m(): Promise<number> { return 1; } // Argument of type 'string[]' is not assignable
@Limited((id: string) => [id], { limit: 5 }) async m(_id: string): Promise<number> { return 1; } // Type 'string[]' is not assignable to type 'string'
@Limited(fromContext(() => ['x']), { limit: 5 }) async m(): Promise<number> { return 1; } // is not assignable
@Limited((id: number) => String(id), { limit: 5 }) async m(_id: string): Promise<number> { return 1; } // the key function takes other parameters than the method
@Limited('x:{3}', { limit: 5 }) async m(_id: string): Promise<number> { return 1; } // the method has no parameter for {3} of the key
@Limited('x', { limit: 5, onContended: 'skip' }) async m(): Promise<number> { return 1; } // a skipped call returns undefined
@Limited('x', { limit: 5, onContended: () => 5 }) async m(): Promise<string> { return ''; } // onContended returns another type than the method
@Limited('x', { limit: 5, onContended: (id: number) => id }) async m(_id: string): Promise<number> { return 1; } // onContended takes other parameters than the method
@Limited('x', { limit: 5 }) m(): number { return 1; } // Observable<unknown>
@LockedCron('* * * * *', 'x') async m(): Promise<void> {} // Expected 3 arguments, but got 2
@LockedCron('* * * * *', 'x', { name: 'x' }) async m(): Promise<void> {} // Property 'holdMs' is missing in type
@LockedCron('* * * * *', 'x', { holdMs: 5, waitMs: 5 }) async m(): Promise<void> {} // 'waitMs' does not exist in type
@LockedCron('* * * * *', 'x', { maxHoldMs: 5 }) async m(): Promise<void> {} // Property 'holdMs' is missing in type
@LockedCron('* * * * *', 'x', { policy: 'x', waitMs: 5 }) async m(): Promise<void> {} // 'waitMs' does not exist in type
@LockedCron('* * * * *', 'x', { holdMs: 5, onUnavailable: 'ignore' }) async m(): Promise<void> {} // '"ignore"' is not assignable to type
@LockedCron('* * * * *', 'x:{0}', { holdMs: 5 }) async m(_id: string): Promise<void> {} // a cron job has no arguments: the key must be a fixed string
@LockedCron('* * * * *', 'x', { holdMs: 5 }) async m(): Promise<number> { return 1; } // a skipped run returns undefined: add undefined to the return type of the method
@LockedCron('* * * * *', 'x', { holdMs: 5 }) m(): Observable<void> { throw 1; } // Promise<unknown>
@Locked('x') m(): number { return 1; } // Observable<unknown>
@Locked('x') get m(): Promise<void> { return Promise.resolve(); } // Observable<unknown>
@Locked('x') m = 5; // the decorator expects 3
@Locked('x') async m(_receipt: Receipt): Promise<void> {} // must be imported with 'import type'
@Locked('x') m(): void {} // Observable<unknown>
@Locked('x') m(): Promise<string> | string { return ''; } // Observable<unknown>
@Locked('x') async *m(): AsyncGenerator<number> {} // Observable<unknown>
@Locked((_id: string, amount: number) => \`\${amount}\`) async m(_id: string): Promise<void> {} // the key function takes other parameters than the method
@Locked((id: string) => id) async m(_id?: string): Promise<void> {} // the key function takes other parameters than the method
@Locked(eitherText) async m(): Promise<void> {} // the method has no parameter for {0} of the key
@Locked('x', { onContended: 'skip' }) async m(): Promise<number | null> { return 1; } // a skipped call returns undefined: add undefined to the return type of the method
@Locked(fromContext(() => 'x'), { onContended: 'skip' }) async m(): Promise<string> { return ''; } // a skipped call returns undefined: add undefined to the return type of the method
@Locked('x', { onContended: () => 5 }) m(): Observable<string> { throw new Error('not run'); } // onContended returns another type than the method
@Locked('order:{user}', { onContended: (id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'ExecutionContext' is not assignable to type 'string'
@Locked('order:{params.id}', { onContended: (_context: ExecutionContext, id: string) => id }) async m(_context: ExecutionContext, _id: string): Promise<string> { return ''; } // Target signature provides too few arguments
@Locked('order:{params.id}', { onContended: (context: ExecutionContext) => context }) async m(_id: string): Promise<string> { return ''; } // onContended returns another type than the method
@Locked('order', { onContended: (context: ExecutionContext) => context.getType() }) async m(_id: string): Promise<string> { return ''; } // onContended takes other parameters than the method
@Locked(\`\${prefix}:all\`, { onContended: (context: ExecutionContext) => context.getType() }) async m(_id: string): Promise<string> { return ''; } // onContended takes other parameters than the method
@Locked(\`\${prefix}:all\`, { onContended: (id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'ExecutionContext' is not assignable to type 'string'
@Locked(eitherText, { onContended: (id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'ExecutionContext' is not assignable to type 'string'
@Locked(['a', anyText], { onContended: (id: string) => id }) async m(_id: string): Promise<string> { return ''; } // Type 'ExecutionContext' is not assignable to type 'string'
@Locked(['a', 'b:{0}'], { onContended: (context: ExecutionContext) => context.getType() }) async m(_id: string): Promise<string> { return ''; } // onContended takes other parameters than the method
@Limited(fromContext(() => 'x'), { limit: 5, onContended: 'skip' }) async m(): Promise<string> { return ''; } // a skipped call returns undefined: add undefined to the return type of the method
@LeaderOnly('x') async m(): Promise<number> { return 1; } // a call of a follower returns undefined: add undefined to the return type of the method
@LeaderOnly('x') m(): void {} // Promise<unknown>
@WhileLeader('x') async m(_id: string): Promise<void> {} // Type 'Leadership' is not assignable to type 'string'
@WhileLeader('x') m(_term: Leadership): void {} // Promise<unknown>
@LeaderOnly('x', { holdMs: 5 }) async m(): Promise<void> {} // 'holdMs' does not exist in type 'LeaderMethodOptions'
@LeaderOnly('x', { maxHoldMs: 5 }) async m(): Promise<void> {} // 'maxHoldMs' does not exist in type 'LeaderMethodOptions'
@LeaderOnly('x', { waitMs: 5 }) async m(): Promise<void> {} // 'waitMs' does not exist in type 'LeaderMethodOptions'
`);

/** Code that must compile. `types.test-d.ts` has more of it. */
const RIGHT = `
const ComposedCron = () => applyDecorators(SetMetadata('x', true), LockedCron('* * * * *', 'x', { holdMs: 5 }));
const Nightly = () => applyDecorators(SetMetadata('nightly', true), Locked('nightly'));
export class Repository<T extends Order> {
  @Nightly() async composed(): Promise<void> {}
  @Limited('entity:{0.id}', { limit: 5, permits: 2, maxHoldMs: 5 }) async limited(entity: T): Promise<T> { return entity; }
  @Limited((entity: Order) => entity.id, { limit: 5, onContended: 'skip' }) async limitedByFunction(_entity: T): Promise<void> {}
  @LockedCron(new Date(), prefix, { holdMs: 5, maxHoldMs: 500, ttlMs: 50, registration: 'x', timeZone: 'UTC' }) async cron(): Promise<void> {}
  @LockedCron(new Date(), 'x', { policy: 'x', onUnavailable: 'skip' }) async cronOfPolicy(): Promise<void> {}
  @LockedCron(new Date(), 'x', { holdMs: 5, onUnavailable: (error) => error.causes.length }) async cronInOutage(): Promise<void> {}
  @ComposedCron() async composedCron(): Promise<string | undefined> { return undefined; }
  @Locked('entity:{0.id}') async template(entity: T): Promise<T> { return entity; }
  @Locked((entity: Order) => entity.id) async keyFunction(_entity: T): Promise<void> {}
  @Locked('order:{0}') async asClass(_id: string, _order: PayOrder): Promise<void> {}
  @Locked('order:{0}') async asTypes(_id: string, _inline: Inline, _typed: Typed): Promise<void> {}
  @Locked('entity:{0.id}', { onContended: 'skip' }) async skip(entity: T): Promise<T | undefined> { return entity; }
}`;

describe('what the compiler says of @Locked', () => {
  let compiled: Awaited<ReturnType<typeof compile>>;
  beforeAll(async () => {
    const members = MISTAKES.map(([member], index) => member.replace(/\bm(?=\(| = 5)/, `m${index}`));
    compiled = await compile('mistakes.ts', HEAD, members, `}\n${RIGHT}`);
  });

  it.each(MISTAKES)(
    'a mistake in @Locked is one error of the compiler, which says what is wrong: %s [G205]',
    (_, message, index) => {
      expect(compiled.of(index)).toEqual([expect.stringContaining(message)]);
    },
  );

  it('@Locked compiles in a composed decorator, and on methods of generic classes [G206]', () => {
    expect(compiled.behind).toEqual([]);
  });
});

const POLICIES = `
import { Limited, Locked, RedisLockModule, type LockPolicy, type LockService } from 'nest-redis-lock';
import { LockedCron } from 'nest-redis-lock/schedule';
import { SqlLockModule } from 'nest-redis-lock/sql';
import { LockTestingModule } from 'nest-redis-lock/testing';
declare module 'nest-redis-lock' {
  interface LockPolicies { slow: LockPolicy; partner: LockPolicy & { limit: number }; plain: unknown }
}
declare const locks: LockService;
const some = { slow: { ttlMs: 120_000, waitMs: 0 }, partner: { limit: 5 } };
const policies = { ...some, plain: {} };
`;

const OF_POLICIES = mistakesIn(`
RedisLockModule.forRoot({ memory: true, policies: some }); // Property 'plain' is missing in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, slwo: {} } }); // 'slwo' does not exist in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, partner: {} } }); // Property 'limit' is missing in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, slow: { ttl: 5 } } }); // 'ttl' does not exist in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, slow: { onContended: 'skip' } } }); // 'onContended' does not exist in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, slow: { ttlMs: '5' } } }); // Type 'string' is not assignable to type 'number'
SqlLockModule.forRoot({ postgres: 'x', policies: some }); // Property 'plain' is missing in type
LockTestingModule.forRoot({ policies: some }); // Property 'plain' is missing in type
locks.acquire('x', { policy: 'slwo' }); // Type '"slwo"' is not assignable to type '"partner" | "plain" | "slow"
locks.tryAcquireAll(['x'], { policy: 'slwo' }); // Type '"slwo"' is not assignable to type '"partner" | "plain" | "slow"
locks.withLock('x', { policy: 'slwo' }, () => 5); // No overload matches this call
locks.acquirePermits('x', { policy: 'slwo' }); // Type '"slwo"' is not assignable to type '"partner" | "plain" | "slow"
class A { @Locked('x', { policy: 'slwo' }) async m(): Promise<number> { return 1; } } // Type '"slwo"' is not assignable to type '"partner" | "plain" | "slow"
class B { @Limited('x', { policy: 'slwo' }) async m(): Promise<number> { return 1; } } // Type '"slwo"' is not assignable to type '"partner" | "plain" | "slow"
class C { @LockedCron('* * * * *', 'x', { policy: 'slwo' }) async m(): Promise<void> {} } // Type '"slwo"' is not assignable to type '"partner" | "plain" | "slow"
`);

const RIGHT_POLICIES = `
RedisLockModule.forRoot({ memory: true, policies });
RedisLockModule.forRoot({ memory: true, name: 'without' });
RedisLockModule.forRootAsync({ useFactory: () => ({ memory: true, policies }) });
SqlLockModule.forRoot({ mysql: 'x', policies });
locks.withPermits('x', { policy: 'partner' }, () => 5);
export class Right {
  @Locked('x', { policy: 'slow', waitMs: 5 }) async locked(): Promise<void> {}
  @Limited('x:{0}', { policy: 'partner', permits: 2 }) async limited(_id: string): Promise<void> {}
  @LockedCron('* * * * *', 'x', { policy: 'slow' }) async cron(): Promise<void> {}
}`;

describe('with policies that are declared', () => {
  let compiled: Awaited<ReturnType<typeof compile>>;
  beforeAll(async () => {
    const statements = OF_POLICIES.map(([statement]) => statement);
    compiled = await compile('mistakes-of-policies.ts', POLICIES, statements, RIGHT_POLICIES);
  });

  it.each(OF_POLICIES)(
    'an undeclared policy, or one that lacks a required option, is one error of the compiler: %s [G864]',
    (_, message, index) => {
      expect(compiled.of(index)).toEqual([expect.stringContaining(message)]);
      expect(compiled.behind).toEqual([]);
    },
  );
});

it('the examples of the README, of docs and of the skills compile with all checks on', async () => {
  generate('stock.ts', STOCK);
  const ofReadme = modulesOf('README.md');
  const ofDocs = modulesOfDocs();
  const ofSkills = SKILLS.flatMap(modulesOf);
  expect(ofReadme).toHaveLength(2);
  expect(ofDocs.length).toBeGreaterThan(15);
  expect(ofSkills.length).toBeGreaterThanOrEqual(SKILLS.length);
  const notInstalled = fileURLToPath(new URL('../readme/not-installed.d.ts', import.meta.url));
  expect(await diagnosticsIn([...ofReadme, ...ofDocs, ...ofSkills], notInstalled)).toEqual([]);
});
