import { runInThisContext } from 'node:vm';
import {
  Fenced,
  FencingToken,
  fromContext,
  InjectLockService,
  LeaderOnly,
  Limited,
  Locked,
  LockOptionsError,
  NotLocked,
  WhileLeader,
} from 'nest-redis-lock';
import { LockedCron } from 'nest-redis-lock/schedule';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';

const DECORATORS = {
  Fenced,
  FencingToken,
  InjectLockService,
  LeaderOnly,
  Limited,
  Locked,
  LockedCron,
  NotLocked,
  WhileLeader,
};

/**
 * Compiles classes without checking their types, like SWC, esbuild and `isolatedModules`.
 * @returns what defines each
 */
function compile(classes: string[], experimentalDecorators = true): [source: string, define: () => void][] {
  const { outputText } = ts.transpileModule(`return [${classes.map((source) => `() => { ${source} }`).join()}];`, {
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      experimentalDecorators,
      emitDecoratorMetadata: experimentalDecorators,
    },
  });
  const known = { ...DECORATORS, fromContext };
  const run = runInThisContext(`(${Object.keys(known).join()}) => {\n${outputText}\n}`) as (
    ...values: unknown[]
  ) => (() => void)[];
  return run(...Object.values(known)).map((define, index) => [classes[index]!, define]);
}

function refusalOf(source: string, experimentalDecorators?: boolean): LockOptionsError {
  const [[, define]] = compile([source], experimentalDecorators) as [[string, () => void]];
  let refusal: unknown;
  try {
    define();
  } catch (error) {
    refusal = error;
  }
  expect(refusal).toBeInstanceOf(LockOptionsError);
  return refusal as LockOptionsError;
}

const NO_PLACE = 'it belongs on a method of a class that Nest creates, and this is';

it.each([
  [
    `class Sync { @Locked('x') name(): string { return 'x'; } }`,
    '@Locked on Sync.name: the method must return a Promise or an Observable. Make it async.',
  ],
  [
    `class Static { @Locked('x') static async run() {} }`,
    `@Locked on Static.run: ${NO_PLACE} static: use LockService there.`,
  ],
  [`@Locked('x') class Whole {}`, `@Locked on Whole: ${NO_PLACE} a class: put it on each of its methods.`],
  [
    `class Getter { @Locked('x') get run() { return Promise.resolve(); } }`,
    `@Locked on Getter.run: ${NO_PLACE} not a method.`,
  ],
  [
    `class Twice { @Locked('a') @Locked('b') async run() {} }`,
    '@Locked on Twice.run: the method has another one: keep one, and in the method call LockService.withLock instead of the other.',
  ],
  [
    `class Several { @Limited(['x', 'y'], { limit: 2 }) async run() {} }`,
    '@Limited on Several.run: the key must be one string, or a function that returns one: permits always belong to one key: got an array.',
  ],
  [
    `class Twice { @LeaderOnly('a') @WhileLeader('b') async run() {} }`,
    '@LeaderOnly on Twice.run: the method has another @LeaderOnly or @WhileLeader',
  ],
  ...[
    [
      `'outbox:{0}'`,
      'the key must be a fixed string like "outbox", since an election begins before there are any calls: got "outbox:{0}"',
    ],
    [`'a', { waitMs: 1 }`, 'There is no option "waitMs": expected ttlMs, registration'],
  ].map(([given, problem]) => [
    `class Jobs { @LeaderOnly(${given}) async run() {} }`,
    `@LeaderOnly on Jobs.run: ${problem}`,
  ]),
  ...[
    [`''`, 'the key "" cannot be read: it is empty.'],
    ['5', 'the key must be a string, an array of strings, or a function that returns one of them: got 5.'],
    [`'order:{0'`, 'a brace is unmatched.'],
    [`'order:{}'`, '{} begins with neither the index of an argument nor params, body,'],
    [`'order:{0..a}'`, '{0..a} is not a path.'],
    [`'order:\${0}'`, '"${" is template-literal syntax: write "{" here.'],
    [`'order:{0}:{params.id}'`, 'it mixes arguments of the method and parts of the request.'],
    [`'order:{params}'`, '{params} needs a path: {params.id}.'],
  ].map(([key, problem]) => [`class Orders { @Locked(${key}) async run() {} }`, problem]),
] as [source: string, problem: string][])('a class is refused when it is defined: %s', (source, problem) => {
  expect(refusalOf(source).message).toContain(problem);
});

it.each<[options: string, problem: string]>([
  ['null', 'the options must be an object: got null.'],
  ['5_000', 'the options must be an object: got 5000.'],
  [
    '{ ttl: 5 }',
    'There is no option "ttl": expected ttlMs, waitMs, watchdog, reentrant, onTransaction, onLost, awaitRelease, holdMs, maxHoldMs, mode, label, note, scope, policy, onContended, onUnavailable, registration.',
  ],
  ['{ ttlMs: 5 }', 'ttlMs must be a whole number of milliseconds from 20 to 86400000: got 5.'],
  ['{ maxHoldMs: 0 }', 'maxHoldMs must be a whole number of milliseconds from 1 to 2147483647: got 0.'],
  [`{ onContended: 'ignore' }`, 'onContended must be "throw", "skip" or a function: got "ignore".'],
  [`{ registration: '' }`, 'registration must be the name of a registration: got "".'],
  ['{ signal: AbortSignal.abort() }', 'it takes no signal: use LockService.withLock.'],
])('@Locked is refused with the options %s', (options, problem) => {
  const { message } = refusalOf(`class Wrong { @Locked('x', ${options}) async run() {} }`);
  expect(message).toContain(`@Locked on Wrong.run: ${problem}`);
});

it.each<[options: string, problem: string]>([
  ['', 'options must be an object with a limit: got undefined.'],
  ['{}', 'limit must be a whole number from 1 to 1000: got undefined.'],
  ['{ limit: 2, permits: 3 }', 'permits must be at most limit: got permits 3 with limit 2.'],
  ['{ limit: 2, holdMs: 5 }', 'Permits have no holdMs: they are released when the work ends. Use a lock.'],
  [
    '{ limit: 2, ttl: 5 }',
    'There is no option "ttl": expected ttlMs, waitMs, watchdog, reentrant, onTransaction, onLost, awaitRelease, maxHoldMs, label, note, scope, policy, limit, permits, onContended, onUnavailable, registration. Did you mean ttlMs?',
  ],
  [`{ limit: 2, mode: 'shared' }`, 'Permits have no mode: for a shared lock, use acquire.'],
  ['{ limit: 2, signal: AbortSignal.abort() }', 'it takes no signal: use LockService.withPermits.'],
])('@Limited is refused with the options %s [G888]', (options, problem) => {
  const { message } = refusalOf(`class Wrong { @Limited('x', ${options}) async run() {} }`);
  expect(message).toContain(`@Limited on Wrong.run: ${problem}`);
});

it.each<[keys: string, problem: string]>([
  ['[]', 'the array of keys is empty: name at least one.'],
  [`['a:{0}', 'b:{params.id}']`, '"a:{0}" uses arguments and "b:{params.id}" the request, which are not known'],
  [`['a', () => 'b']`, 'a string, an array of strings, or a function that returns one of them: got a func'],
  [`['a', fromContext(() => 'b')]`, 'or a function that returns one of them: got an object.'],
  [`['a', ['b']]`, 'or a function that returns one of them: got an array.'],
  ['Array(2)', 'or a function that returns one of them: got undefined.'],
  [`['a', '']`, 'the key "" cannot be read: it is empty.'],
  [`['a', 'b:{0}:{params.id}']`, 'it mixes arguments of the method and parts of the request.'],
])('a class whose method has the keys %s is refused when it is defined [G368]', (keys, problem) => {
  const { message } = refusalOf(`class Wrong { @Locked(${keys}) async run() {} }`);
  expect(message).toMatch(/^@Locked on Wrong.run: /);
  expect(message).toContain(problem);
});

it.each([
  [`{ policy: 5 }`, 'policy must be the name of a policy: got 5.'],
  [`{ policy: '' }`, 'policy must be the name of a policy: got "".'],
  [`{ policies: 'slow' }`, 'There is no option "policies"'],
])('a method that names a policy is refused at its definition: %s [G867]', (options, problem) => {
  const { message } = refusalOf(`class Job { @Locked('job', ${options}) async run() {} }`);
  expect(message).toContain(`@Locked on Job.run: ${problem}`);
});

it.each<[given: string, problem: string]>([
  [
    `'job:{0}', { holdMs: 50 }`,
    'the key must be a fixed string like "nightly", since a cron job has no arguments: got "job:{0}"',
  ],
  [`'job:{params.id}', { holdMs: 50 }`, 'the key must be a fixed string like "nightly"'],
  [`['a', 'b'], { holdMs: 50 }`, 'since a cron job has no arguments: got an array'],
  ['undefined, { holdMs: 50 }', 'got undefined'],
  [`'', { holdMs: 50 }`, 'the key "" cannot be read: it is empty.'],
  [`'job'`, 'holdMs must be a number of milliseconds, more than the difference between the clocks of the instances'],
  [`'job', {}`, 'got undefined.'],
  [`'job', { holdMs: 0 }`, 'got 0.'],
  [`'job', { holdMs: 0.5 }`, 'holdMs must be a whole number of milliseconds'],
  [`'job', { holdMs: 50, maxHoldMs: 49 }`, 'maxHoldMs must be at least holdMs: got maxHoldMs 49 with holdMs 50.'],
  [`'job', { holdMs: 50, ttlMs: 1 }`, 'ttlMs must be a whole number of milliseconds from 20'],
])('@LockedCron is refused when the class is defined with %s [G383]', (given, problem) => {
  const { message } = refusalOf(`class Wrong { @LockedCron('0 0 1 1 *', ${given}) async run() {} }`);
  expect(message).toMatch(/^@Locked(Cron)? on Wrong\.run: [^@]*$/); // its place is named once
  expect(message).toContain(problem);
});

it('@NotLocked together with @Locked is refused when the class is defined, in either order [G619]', () => {
  for (const both of [`@Locked('order') @NotLocked()`, `@NotLocked() @Locked('order')`])
    expect(refusalOf(`class Both { ${both} async pay() {} }`).message).toContain(
      'Locked on Both.pay: the method is both @Locked and @NotLocked: remove one of them.',
    );
});

it.each<[source: string, subject: string]>([
  [`class Orders { @Limited('x', { limit: 2 }) async pay() {} }`, '@Limited on pay'],
  [`class Orders { @Locked('x') async pay() {} }`, '@Locked on pay'],
  [`class Orders { @Locked('x') static async pay() {} }`, '@Locked on pay'],
  [`class Orders { @Locked('x') async #pay() {} }`, '@Locked on #pay'],
  [`class Orders { @Locked('x') async [Symbol.iterator]() {} }`, '@Locked on Symbol(Symbol.iterator)'],
  [`class Orders { @Locked('x') get pay() { return 1; } }`, '@Locked on pay'],
  [`class Orders { @Locked('x') pay = async () => {}; }`, '@Locked on pay'],
  [`@Locked('x') class Orders {}`, '@Locked on Orders'],
  [`class Orders { @Fenced('x:{params.id}') async pay() {} }`, '@Fenced on pay'],
  [`@Fenced('x:{params.id}') class Orders {}`, '@Fenced on Orders'],
  [`class Orders { @InjectLockService('billing') locks; }`, '@InjectLockService on locks'],
])('what is compiled to a standard decorator names the options to compile with: %s [G207]', (source, subject) => {
  expect(refusalOf(source, false).message).toBe(
    `${subject} was compiled to a standard decorator, which Nest cannot read. ` +
      'Set "experimentalDecorators" and "emitDecoratorMetadata" to true in the compilerOptions of tsconfig.json ' +
      '(in .swcrc: "legacyDecorator" and "decoratorMetadata").',
  );
});

const RIGHT: Record<keyof typeof DECORATORS, string> = {
  Fenced: "@Fenced('stock:{params.sku}')",
  FencingToken: "@FencingToken('key')",
  InjectLockService: '@InjectLockService()',
  LeaderOnly: "@LeaderOnly('key')",
  Limited: "@Limited('key', { limit: 5 })",
  Locked: "@Locked('key')",
  LockedCron: "@LockedCron('0 3 * * *', 'key', { holdMs: 60_000 })",
  NotLocked: '@NotLocked()',
  WhileLeader: "@WhileLeader('key')",
};

describe.each(Object.entries(RIGHT))('@%s', (name, right) => {
  const places = [
    `class Orders { @${name} async pay() {} }`,
    `class Orders { @${name} async [Symbol.iterator]() {} }`,
    `class Orders { @${name} static async pay() {} }`,
    `class Orders { @${name} get pay() { return 1; } }`,
    `class Orders { @${name} pay = async () => {}; }`,
    `@${name} class Orders {}`,
  ];
  const parameters = [`class Orders { async pay(@${name} id) {} }`, `class Orders { constructor(@${name} id) {} }`];

  it('a decorator without parentheses is refused in every place [G550]', () => {
    for (const [source, define] of compile([...places, ...parameters])) {
      expect(define, source).toThrow(LockOptionsError);
      expect(define, source).toThrow(`@${name} was used without parentheses`);
      expect(define, source).toThrow(`Write ${right}, with parentheses.`);
    }
  });

  it('a decorator without parentheses is refused in every place of a standard class, too [G551]', () => {
    for (const [source, define] of compile(places, false)) {
      expect(define, source).toThrow(LockOptionsError);
      expect(define, source).toThrow(`Write ${right}, with parentheses.`);
    }
  });
});
