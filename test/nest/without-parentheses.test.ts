import { runInThisContext } from 'node:vm';
import {
  Fenced,
  FencingToken,
  InjectLockService,
  LeaderOnly,
  Locked,
  LockOptionsError,
  NotLocked,
  WhileLeader,
} from 'nest-redis-lock';
import { LockedCron } from 'nest-redis-lock/schedule';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';

const DECORATORS = { Fenced, FencingToken, InjectLockService, LeaderOnly, Locked, LockedCron, NotLocked, WhileLeader };

/** Compiles classes without a look at their types, as SWC, esbuild and `isolatedModules` do. @returns what defines each */
function compile(classes: string[], experimentalDecorators = true): [source: string, define: () => void][] {
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, experimentalDecorators };
  const functions = classes.map((source) => `() => { ${source} }`);
  const { outputText } = ts.transpileModule(`return [${functions.join()}];`, { compilerOptions });
  const run = runInThisContext(`(${Object.keys(DECORATORS).join()}) => {\n${outputText}\n}`) as (
    ...decorators: unknown[]
  ) => (() => void)[];
  return run(...Object.values(DECORATORS)).map((define, index) => [classes[index]!, define]);
}

const RIGHT = {
  Fenced: "@Fenced('stock:{params.sku}')",
  FencingToken: "@FencingToken('key')",
  InjectLockService: '@InjectLockService()',
  LeaderOnly: "@LeaderOnly('key')",
  Locked: "@Locked('key')",
  LockedCron: "@LockedCron('0 3 * * *', 'key', { holdMs: 60_000 })",
  NotLocked: '@NotLocked()',
  WhileLeader: "@WhileLeader('key')",
};
const names = Object.keys(RIGHT) as (keyof typeof RIGHT)[];

describe.each(names)('@%s', (name) => {
  const places = [
    `class Orders { @${name} async pay() {} }`,
    `class Orders { @${name} async [Symbol.iterator]() {} }`,
    `class Orders { @${name} static async pay() {} }`,
    `class Orders { @${name} get pay() { return 1; } }`,
    `class Orders { @${name} pay = async () => {}; }`,
    `@${name} class Orders {}`,
  ];
  const parameters = [`class Orders { async pay(@${name} id) {} }`, `class Orders { constructor(@${name} id) {} }`];

  it('a decorator without parentheses is refused wherever it stands [G550]', () => {
    for (const [source, define] of compile([...places, ...parameters])) {
      expect(define, source).toThrow(LockOptionsError);
      expect(define, source).toThrow(`@${name} was used without parentheses`);
      expect(define, source).toThrow(`Write ${RIGHT[name]}, with parentheses.`);
    }
  });

  it('a decorator without parentheses is refused wherever it stands in a standard class, too [G551]', () => {
    for (const [source, define] of compile(places, false)) {
      expect(define, source).toThrow(LockOptionsError);
      expect(define, source).toThrow(`Write ${RIGHT[name]}, with parentheses.`);
    }
  });
});

it('the refusal of a decorator without parentheses names the class and the member', () => {
  const [[, define]] = compile(['class Orders { @Locked async pay() {} }']) as [[string, () => void]];
  expect(define).toThrow(
    "@Locked was used without parentheses on Orders.pay, and would do nothing there. Write @Locked('key'), with parentheses.",
  );
});

it('what is written with parentheses is taken, also where it looks like what a decorator gets', () => {
  function classic(): string {
    return 'key';
  }
  for (const key of [() => 'key', (...parts: string[]) => parts.join(), classic, ['a', 'b'], 'pay']) {
    expect((Locked as (key: unknown, options?: object) => unknown)(key, {})).toBeTypeOf('function');
    expect((Locked as (key: unknown) => unknown)(key)).toBeTypeOf('function');
  }
  expect(LockedCron(new Date(), 'key', { holdMs: 1_000 })).toBeTypeOf('function');
  expect(InjectLockService('billing')).toBeTypeOf('function');
  expect(FencingToken()).toBeTypeOf('function');
});
