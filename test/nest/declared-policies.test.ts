import { beforeAll, describe, expect, it } from 'vitest';
import { diagnosticsOf, type Diagnostic } from '../support/diagnostics.js';

const HEAD = `
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

/** Each with what the one error about it says. */
const MISTAKES = `
RedisLockModule.forRoot({ memory: true, policies: some }); // Property 'plain' is missing in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, slwo: {} } }); // 'slwo' does not exist in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, partner: {} } }); // Property 'limit' is missing in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, slow: { ttl: 5 } } }); // 'ttl' does not exist in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, slow: { onContended: 'skip' } } }); // 'onContended' does not exist in type
RedisLockModule.forRoot({ memory: true, policies: { ...policies, slow: { ttlMs: '5' } } }); // Type 'string' is not assignable to type 'number'
SqlLockModule.forRoot({ postgres: 'x', policies: some }); // Property 'plain' is missing in type
LockTestingModule.forRoot({ policies: some }); // Property 'plain' is missing in type
locks.acquire('x', { policy: 'slwo' }); // Type '"slwo"' is not assignable to type '"slow" | "partner" | "plain"
locks.tryAcquireAll(['x'], { policy: 'slwo' }); // Type '"slwo"' is not assignable to type '"slow" | "partner" | "plain"
locks.withLock('x', { policy: 'slwo' }, () => 5); // No overload matches this call
locks.acquirePermits('x', { policy: 'slwo' }); // Type '"slwo"' is not assignable to type '"slow" | "partner" | "plain"
class A { @Locked('x', { policy: 'slwo' }) async m(): Promise<number> { return 1; } } // Type '"slwo"' is not assignable to type '"slow" | "partner" | "plain"
class B { @Limited('x', { policy: 'slwo' }) async m(): Promise<number> { return 1; } } // Type '"slwo"' is not assignable to type '"slow" | "partner" | "plain"
class C { @LockedCron('* * * * *', 'x', { policy: 'slwo' }) async m(): Promise<void> {} } // Type '"slwo"' is not assignable to type '"slow" | "partner" | "plain"
`
  .trim()
  .split('\n')
  .map((line) => line.split(' // ') as [statement: string, message: string]);

const RIGHT = `
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
  let diagnostics: Diagnostic[];

  beforeAll(() => {
    diagnostics = diagnosticsOf([HEAD, ...MISTAKES.map(([statement]) => statement), RIGHT].join('\n'));
  }, 120_000);

  const first = HEAD.split('\n').length + 1;

  it.each(MISTAKES.map(([statement, message], index) => [statement, message, index] as const))(
    'a policy that is not among the declared ones, or lacks what it must have, is one error of the compiler: %s [G864]',
    (_, message, index) => {
      expect(diagnostics.filter(({ line }) => line === first + index).map((one) => one.message)).toEqual([
        expect.stringContaining(message),
      ]);
    },
  );
});
