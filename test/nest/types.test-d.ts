// Checked by `npm run types`: wrong code must not compile, correct code must. Nothing here runs.
import { applyDecorators, SetMetadata, type ExecutionContext } from '@nestjs/common';
import type { Redis } from 'ioredis';
import {
  fromContext,
  InjectLockService,
  LeaderOnly,
  Limited,
  Locked,
  RedisLockModule,
  WhileLeader,
  type AcquireOptions,
  type Leader,
  type Leadership,
  type LimitedOptions,
  type Lock,
  type LockedOptions,
  type LockService,
  type LockSet,
  type LockUnavailableError,
  type Permit,
  type RedisLockModuleOptions,
  type WithLockOptions,
} from 'nest-redis-lock';
import { guard, guardStatement } from 'nest-redis-lock/sql';
import type { ClientBase } from 'pg';
import type { BehaviorSubject, Observable } from 'rxjs';

interface Order {
  id: string;
  lines: { sku: string }[];
}

declare const client: Redis;
declare const prefix: string;
declare const anyText: string;
declare const anyTexts: string[];

enum Keys {
  static = 'nightly',
  ofRequest = 'order:{params.id}',
}

const Template = (key: string): MethodDecorator => Locked(key);
const LimitedTemplate = (key: string): MethodDecorator => Limited(key, { limit: 5 });
const limitedOptions: LimitedOptions = { limit: 5, onContended: 'skip' };
const SkipComposed = () => applyDecorators(Locked('order:{0}', { onContended: 'skip' }));

/** One method a line, with its decorator. */
// prettier-ignore
export class Right {
  @Locked((id: string) => id) async fewerParameters(_id: string, _amount: number): Promise<void> {}
  @Locked((order: { id: string }) => order.id) async widerParameter(_order: Order): Promise<void> {}
  @Locked((id: string, amount?: number) => `${id}:${amount}`) async optionalParameter(_id: string, _amount?: number): Promise<void> {}
  @Locked((first: string, ...rest: string[]) => [first, ...rest].join()) async restParameters(_first: string, ..._rest: string[]): Promise<void> {}
  @Locked((order) => order.id) async inferredParameter(_order: Order): Promise<void> {}
  @Locked((order) => order.id, { onContended: (order, amount) => `${order.lines.length} ${amount?.toFixed(2)}` }) async inferredAnswer(_order: Order, _amount?: number): Promise<string> { return ''; }
  @Locked('order:{0.id}', { onContended: (order) => order.lines.length }) async inferredAnswerBesideTemplate(_order: Order): Promise<number> { return 1; }
  @Locked((order: Order) => order.id, { onContended: (order: Order) => order }) async answerBesideKeyFunction(_order: Order): Promise<Order> { return _order; }
  @Locked<[order: Order]>((order) => order.id, { onContended: 'skip' }) async typesWrittenOut(_order: Order): Promise<void> {}
  @Locked('x:{1}:{0.id}') async optionalIndex(_order: Order, _amount?: number): Promise<void> {}
  @Locked('x:{7}') async indexOfRest(_first: string, ..._rest: string[]): Promise<void> {}
  @Locked(`${prefix}:{1}`) async indexBehindPrefix(this: Right, _id: string, _amount: number): Promise<void> {}
  @Locked('x:{0}:{1.a.0}') async indexOfGeneric<T>(_id: string, _value: { a: T[] }): Promise<void> {}
  @Locked('x:{0.id}') async pathOfUnion(_order: Order | string | undefined): Promise<void> {}
  @Locked('x:{0.id}') async pathOfOptional(_order?: Partial<Order>): Promise<void> {}
  @Locked('x:{0.id}:{1.id}:{2.id}') async pathOfUnknown(_a: unknown, _b: object, _c: ReturnType<typeof JSON.parse>): Promise<void> {}
  @Locked('x:{0.id}:{1.0}:{2.1}') async pathOfDictionary(_a: Record<string, string>, _b: string[], _c: [string, number]): Promise<void> {}
  @Locked('x:{0.id}:{1.id}') async pathOfRest(..._orders: Order[]): Promise<void> {}
  @Locked('x:{0.id}:{1.id}') async pathOfGenerics<T, U extends Order>(_a: T, _b: U): Promise<void> {}
  @Locked('x:{0.lines.0.sku}:{0.id.length}') async deepPath(_order: Order): Promise<void> {}
  @Limited('x', { limit: 5, scope: null }) async permitsOfAllTenants(): Promise<void> {}
  @Locked('x') subject(): BehaviorSubject<number> { throw new Error('not run'); }
  @Locked((value: { id: string }) => value.id) async generic<T extends { id: string }>(value: T): Promise<T> { return value; }
  overloaded(id: string): Promise<string>;
  overloaded(id: number): Promise<number>;
  @Locked((id: string | number) => String(id)) async overloaded(id: string | number): Promise<string | number> { return id; }
  overloadedWithTemplate(id: string): Promise<string>;
  overloadedWithTemplate(id: number): Promise<number>;
  @Locked('x:{0}') async overloadedWithTemplate(id: string | number): Promise<string | number> { return id; }
  @Locked('x', { ttlMs: 1_000, waitMs: 0, watchdog: false, reentrant: false, onLost: 'ignore', awaitRelease: false, note: 'x', registration: 'billing' }) async allOptions(): Promise<void> {}
  @Locked((id: string) => id, { onContended: 'skip' }) async skipWithUndefined(_id: string): Promise<number | undefined> { return 1; }
  @Locked('x', { onContended: 'skip' }) async skipWithVoid(): Promise<number | void> { return 1; }
  @Locked('x', { onContended: 'skip' }) async skipWithUnknown(): Promise<unknown> { return 1; }
  @Locked('x', { onContended: 'skip' }) async skipWithAny(): Promise<ReturnType<typeof JSON.parse>> { return 1; }
  @Locked(fromContext((context) => context.getHandler().name), { onContended: 'skip' }) async skipHandler(_id: number): Promise<void> {}
  @Locked('x', { onContended: (id: string) => id.length }) async answer(_id: string, _amount: number): Promise<number> { return 1; }
  @Locked('x', { onContended: (id: string) => id.length }) observableAnswer(_id: string): Observable<number> { throw new Error('not run'); }
  @Locked((id: string) => id, { onContended: () => { throw new Error('of the caller'); } }) async throwing(_id: string): Promise<number> { return 1; }
  @Locked(fromContext((context) => context.getHandler().name), { onContended: (context: ExecutionContext) => context.getType() }) async handler(_id: number): Promise<string> { return ''; }
  @Locked('order:{params.id}', { onContended: (context: ExecutionContext) => context.getType() }) async requestTemplate(_id: number): Promise<string> { return ''; }
  @Locked('order:{user}:{body.lines.0.sku}', { onContended: async (context) => context.getHandler().name }) async inferredContext(_id: number): Promise<string> { return ''; }
  @Locked('feed:{args.id}', { onContended: (context) => context.getArgs().length }) streamOfRequest(_id: string): Observable<number> { throw new Error('not run'); }
  @Locked(`${prefix}:{data.id}`, { onContended: (context: ExecutionContext) => context.getType() }) async requestTemplateWithPrefix(_id: number): Promise<string> { return ''; }
  @Locked(Keys.ofRequest, { onContended: (context: ExecutionContext) => context.getType() }) async requestTemplateOfEnum(_id: number): Promise<string> { return ''; }
  @Locked('order:{params.id}', { onContended: 'skip' }) async skipRequestTemplate(_id: number): Promise<void> {}
  @Locked('order:{params.id}') async requestTemplateAlone(_id: number): Promise<Order | undefined> { return undefined; }
  @Locked('order:{0.params.id}:{1}', { onContended: (request: { params: { id: string } }) => request.params.id }) async argumentTemplate(_request: { params: { id: string } }, _amount: number): Promise<string> { return ''; }
  @Locked(`${prefix}:{0}`, { onContended: (id: string) => id }) async argumentTemplateWithPrefix(_id: string): Promise<string> { return ''; }
  @Locked(Keys.static, { onContended: (id: string) => id }) async staticOfEnum(_id: string): Promise<string> { return ''; }
  @Locked(anyText, { onContended: () => 'busy' }) async textNotKnown(_id: string): Promise<string> { return ''; }
  @Locked(anyText, { onContended: (first: string | ExecutionContext) => typeof first }) async textNotKnownButBothExpected(_id: string): Promise<string> { return ''; }
  @Locked(['all', 'from:{0.id}'], { onContended: (order) => order.lines.length }) async inferredAnswerBesideTemplates(_order: Order): Promise<number> { return 1; }
  @Locked(['all', 'from:{params.id}'], { onContended: (context) => context.getType() }) async inferredContextOfSeveral(_id: number): Promise<string> { return ''; }
  @Locked(['all', `${prefix}:{body.id}`], { onContended: (context: ExecutionContext) => context.getType() }) async requestTemplatesWithPrefix(_id: number): Promise<string> { return ''; }
  @Locked(['a', 'b'], { onContended: (id: string) => id }) async severalStatic(_id: string): Promise<string> { return ''; }
  @Locked(['a', anyText], { onContended: () => 'busy' }) async oneTextNotKnown(_id: string): Promise<string> { return ''; }
  @Locked(['a:{0}', anyText], { onContended: (first: string | ExecutionContext) => typeof first }) async oneTextNotKnownBesideTemplate(_id: string): Promise<string> { return ''; }
  @Locked(anyTexts, { onContended: (first: string | ExecutionContext) => typeof first }) async textsNotKnown(_id: string): Promise<string> { return ''; }
  @Locked(['a', 'b'] as const, { ttlMs: 1_000, onContended: 'skip' }) async skipSeveral(): Promise<void> {}
  @Locked((order: Order) => order.lines.map(({ sku }) => sku)) async severalOfKeyFunction(_order: Order): Promise<void> {}
  @Locked((order) => [order.id, 'all'], { onContended: (order) => order.id }) async severalOfInferredKeyFunction(_order: Order): Promise<string> { return ''; }
  @Locked(fromContext((context) => [context.getClass().name, 'all']), { onContended: (context) => context.getType() }) async severalOfContext(_id: number): Promise<string> { return ''; }
  @Locked(['x:{0}', 'y']) severalOfStream(_id: string): Observable<number> { throw new Error('not run'); }
  @Limited('x:{0}', { policy: 'any', permits: 2, onUnavailable: async (_error, count) => count }) async limitOfPolicy(_count: number): Promise<number> { return 1; }
  @Locked('x', { onUnavailable: (error) => { throw error; } }) async throwsOwn(): Promise<number> { return 1; }
  @Locked('x:{0.id}', { onUnavailable: (error, order) => error.message + order.id }) async inferredInOutage(_order: Order): Promise<string> { return ''; }
  @Locked((order) => order.id, { onContended: (order) => order.id, onUnavailable: (_error, order, amount) => `${order.id} ${amount?.toFixed(2)}` }) async inferredTwice(_order: Order, _amount?: number): Promise<string> { return ''; }
  @Locked('x:{0}', { onContended: (id) => id, onUnavailable: 'skip' }) async answerOrSkip(_id: string): Promise<string | undefined> { return ''; }
  @Locked('x:{params.id}', { onUnavailable: (error, context) => error.code + context.getType() }) async contextInOutage(_id: number): Promise<string> { return ''; }
  @Locked(fromContext(() => 'x'), { onUnavailable: (_error: LockUnavailableError, context: ExecutionContext) => context.getType() }) async handlerInOutage(_id: number): Promise<string> { return ''; }
  @Locked(anyText, { onUnavailable: (error, first) => `${error.code} ${typeof first}` }) async textNotKnownInOutage(_id: string): Promise<string> { return ''; }
  @Locked<[order: Order]>((order) => order.id, { onContended: 'skip', onUnavailable: 'skip' }) async bothSkip(_order: Order): Promise<void> {}
  @Locked('x', { holdMs: 5_000, maxHoldMs: 60_000 }) async limited(): Promise<void> {}
  @Template('order:{0}') async asMethodDecorator(_id: string): Promise<void> {}
  @applyDecorators(SetMetadata('role', 'admin'), Locked('x')) async composed(): Promise<void> {}
  @SkipComposed() async skipComposed(): Promise<void> {}
}

export const composed: MethodDecorator[] = [
  Locked(['from:{0}', 'to:{1}'], { onContended: 'skip' }),
  Locked((order: Order) => order.id, { onContended: (order: Order) => order }),
  Limited('order:{0}', { limit: 5, onContended: (id: string) => id }),
  applyDecorators(Locked('order:{0}'), Locked(anyText), Locked('x', { ttlMs: 1_000, onContended: 'throw' })),
  applyDecorators(Locked('order:{params.id}', { onContended: (context: ExecutionContext) => context.getType() })),
  applyDecorators(
    Locked((order: Order) => order.id),
    Locked('order:{0}', { onContended: (id: string) => id }),
  ),
];

// prettier-ignore
export class Repository<T extends { id: string }, Args extends string[]> {
  @Locked((entities: { id: string }[]) => entities.map(({ id }) => id).join()) async saveAll(_entities: T[]): Promise<void> {}
  @Locked((entity) => entity.id) async inferred(_entity: T): Promise<void> {}
  @Locked((entity: { id: string }) => entity.id, { onContended: (_entity: { id: string }) => undefined }) async answer(_entity: T): Promise<T | undefined> { return _entity; }
  @Locked('entity:{params.id}', { onContended: (context) => context.getType() }) async answerOfRequest(_entity: T): Promise<T | string> { return _entity; }
  @Locked(['entity:{0.id}', 'all']) async severalOfClass(_entity: T): Promise<void> {}
  @Locked('entity:{1}') async restOfClass(..._args: Args): Promise<void> {}
  @Locked('entity:{0.id}') observable(_entity: T): Observable<T> { throw new Error('not run'); }
  // @ts-expect-error -- T has no such property
  @Locked((entity: { name: string }) => entity.name) async otherProperty(_entity: T): Promise<void> {}
  // @ts-expect-error -- the method has no second parameter
  @Locked((entity: { id: string }, version: number) => `${entity.id}:${version}`) async moreParameters(_entity: T): Promise<void> {}
  // @ts-expect-error -- the method has no second parameter
  @Locked('entity:{1}') async noSuchIndex(_entity: T): Promise<void> {}
  // @ts-expect-error -- a skipped call returns undefined
  @Locked('entity:{0.id}', { onContended: 'skip' }) async skipAlways(_entity: T): Promise<T> { return _entity; }
}

export const rightRegistrations = [
  RedisLockModule.forRoot({ redis: 'redis://a' }),
  RedisLockModule.forRoot({ redis: { host: 'a', port: 6379 }, isGlobal: false, name: 'billing' }),
  RedisLockModule.forRoot({ redis: client, ttlMs: 5_000 }),
  RedisLockModule.forRoot({ redis: async () => client }),
  RedisLockModule.forRoot({ redlock: ['redis://a', client, { host: 'b' }] }),
  RedisLockModule.forRoot({ memory: true }),
  // @ts-expect-error -- it belongs to the work
  RedisLockModule.forRoot({ memory: true, maxHoldMs: 5_000 }),
  RedisLockModule.forRoot({ memory: true, insideTransaction: () => true, onTransaction: 'refuse' }),
  RedisLockModule.forRootAsync({ useFactory: () => ({ memory: true }) }),
  RedisLockModule.forRootAsync({ useFactory: async (url: string) => ({ redis: url }), inject: ['URL'], name: 'x' }),
];

export const wrongRegistrations: RedisLockModuleOptions[] = [
  // @ts-expect-error -- where are the locks?
  {},
  // @ts-expect-error -- one Redis or several masters, not both
  { redis: 'redis://a', redlock: ['redis://a', 'redis://b', 'redis://c'] },
  // @ts-expect-error -- Redis or memory, not both
  { redis: 'redis://a', memory: true },
  // @ts-expect-error -- true or left out
  { memory: false },
  // @ts-expect-error -- an array
  { redlock: 'redis://a' },
  // @ts-expect-error -- no such option
  { redis: 'redis://a', ttl: 5 },
  // @ts-expect-error -- ioredis has no such option
  { redis: { host: 'a', pasword: 'secret' } },
  // @ts-expect-error -- nor has node-redis
  { redis: { url: 'redis://a', databse: 3 } },
  // @ts-expect-error -- milliseconds are numbers
  { redis: 'redis://a', ttlMs: '5s' },
  // @ts-expect-error -- the answer comes too late
  { redis: 'redis://a', insideTransaction: async () => true },
  // @ts-expect-error -- no such way
  { redis: 'redis://a', onTransaction: 'throw' },
];

export async function services(locks: LockService): Promise<void> {
  const text: string = await locks.withLock('x', async (lock) => lock.key);
  const number: number = await locks.withLock('x', { ttlMs: 1_000 }, () => text.length);
  const lock = await locks.tryAcquire('x');
  // @ts-expect-error -- null when somebody else holds it
  lock.assertHeld();
  // @ts-expect-error -- it never waits
  await locks.tryAcquire('x', { waitMs: number });
  const lease: AcquireOptions = { ttlMs: 1_000, waitMs: number };
  await locks.acquire('x', lease);
  // @ts-expect-error -- it never waits, whichever way the options come
  await locks.tryAcquire('x', lease);
  await locks.tryAcquire('x', { ttlMs: 1_000, waitMs: undefined });
  // @ts-expect-error -- nothing is left to reject when the lock is lost
  await locks.acquire('x', { onLost: 'ignore' });
  const parcel = await (await locks.acquire('x', { note: text })).detach({ ttlMs: number, note: text });
  // @ts-expect-error -- the note of a parcel is in its owner value
  await locks.extend(parcel, { ttlMs: number, note: text });
  // @ts-expect-error -- its caller releases the lock
  await locks.acquire('x', { awaitRelease: false });
  // @ts-expect-error -- the same
  await locks.acquirePermits('x', { limit: 2, awaitRelease: false });
  await locks.withPermits('x', { limit: 2, awaitRelease: false }, () => {});
  const ofWork: WithLockOptions = { ...lease, onLost: 'ignore', awaitRelease: false };
  await locks.withLock('x', ofWork, () => text);
  // @ts-expect-error -- the same
  await locks.acquire('x', ofWork);
  // @ts-expect-error -- a lock is told by its key
  await locks.acquire(5);
}

/** `@Limited` has the types of `@Locked`, except for its limit and its single key. */
// prettier-ignore
export class LimitedRight {
  @Limited((order) => order.id, { limit: 5, onContended: (order) => order.lines.length }) async inferred(_order: Order): Promise<number> { return 1; }
  @Limited('order:{0.id}', { limit: 5, onContended: (order) => order.lines.length }) async inferredAnswer(_order: Order): Promise<number> { return 1; }
  @Limited('order:{params.id}', { limit: 5, onContended: (context) => context.getType() }) async inferredContext(_id: number): Promise<string> { return ''; }
  @Limited(fromContext((context) => context.getClass().name), { limit: 5, onContended: (context) => context.getType() }) async ofContext(_id: number): Promise<string> { return ''; }
  @Limited('x', { limit: 5, permits: 2, ttlMs: 1_000, waitMs: 0, watchdog: false, reentrant: false, onLost: 'ignore', awaitRelease: false, onTransaction: 'allow', maxHoldMs: 5, label: 'x', registration: 'billing' }) async allOptions(): Promise<void> {}
  @LimitedTemplate('order:{0}') async asMethodDecorator(_id: string): Promise<void> {}
  @Limited('x', limitedOptions) async withSharedOptions(_id: string): Promise<void> {}
}

export async function permits(locks: LockService): Promise<void> {
  const text: string = await locks.withPermits('x', { limit: 2 }, async (permit) => `${permit.permits}`);
  await using permit: Permit = await locks.acquirePermits('x', { limit: text.length, permits: 2 });
  // @ts-expect-error -- others hold permits, too
  permit.fencingToken.toFixed();
  // @ts-expect-error -- no limit
  await locks.acquirePermits('x', {});
  // @ts-expect-error -- null when others hold too many
  (await locks.tryAcquirePermits('x', { limit: 2 })).assertHeld();
}

const LeaderComposed = () => applyDecorators(LeaderOnly('x'), WhileLeader('x'));

// prettier-ignore
export class Leaders {
  @LeaderOnly('x') async nothing(): Promise<void> {}
  @LeaderOnly('x', { ttlMs: 5_000, registration: 'billing' }) async maybe(_id: string): Promise<number | undefined> { return 1; }
  @LeaderComposed() async composed(): Promise<void> {}
  @WhileLeader('x') async whileLeader({ term, signal }: Leadership): Promise<string> { return `${term.toFixed()} ${signal.aborted}`; }
  @WhileLeader('x', { ttlMs: 5_000 }) async withoutParameter(): Promise<void> {}
}

export function leaders(locks: LockService): Leader {
  const leader = locks.leader('x', { ttlMs: 5_000 });
  // @ts-expect-error -- undefined while it does not lead
  leader.term.toFixed();
  leader.state$.subscribe((state) => {
    if (state.status === 'leading') state.leadership.assertHeld();
    if (state.status === 'ending') return state.reason === 'resigned';
    // @ts-expect-error -- only of a leader
    return state.leadership;
  });
  return leader;
}

export async function guards(lock: Lock, locks: LockSet, client: ClientBase): Promise<void> {
  await guard(lock, client);
  await guard(locks, (text, values) => client.query(text, values));
  const { text, values } = guardStatement(lock);
  await client.query(text, values);
  // @ts-expect-error -- no lock
  await guard({ key: 'x' }, client);
  // @ts-expect-error -- no lock yet
  await guard(Promise.resolve(lock), client);
  // @ts-expect-error -- nothing that runs a statement
  await guard(lock, {});
}

export class Injected {
  constructor(@InjectLockService('billing') readonly billing: LockService) {}
}

export const shared: LockedOptions = { ttlMs: 5_000, onContended: 'skip' };

export class Shared {
  @Locked('x', shared) async withSharedOptions(_id: string): Promise<void> {}
}
