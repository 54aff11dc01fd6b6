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

/** Compiles a class without a look at its types, as SWC, esbuild and `isolatedModules` do, and defines it. */
function define(source: string, experimentalDecorators = true): void {
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, experimentalDecorators };
  const { outputText } = ts.transpileModule(source, { compilerOptions });
  const run = runInThisContext(`(${Object.keys(DECORATORS).join()}) => {\n${outputText}\n}`) as (
    ...decorators: unknown[]
  ) => void;
  run(...Object.values(DECORATORS));
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

describe.each(names)('%s without parentheses', (name) => {
  const places: [place: string, source: string][] = [
    ['a method', `class Orders { @${name} async pay() {} }`],
    ['a method that is named by a symbol', `class Orders { @${name} async [Symbol.iterator]() {} }`],
    ['a static method', `class Orders { @${name} static async pay() {} }`],
    ['a getter', `class Orders { @${name} get pay() { return 1; } }`],
    ['a field', `class Orders { @${name} pay = async () => {}; }`],
    ['a class', `@${name} class Orders {}`],
  ];
  const parameters: typeof places = [
    ['a parameter', `class Orders { async pay(@${name} id) {} }`],
    ['a parameter of the constructor', `class Orders { constructor(@${name} id) {} }`],
  ];

  it.each([...places, ...parameters])(`a decorator without parentheses is refused on %s [G550]`, (_, source) => {
    expect(() => define(source)).toThrow(LockOptionsError);
    expect(() => define(source)).toThrow(`@${name} was used without parentheses`);
    expect(() => define(source)).toThrow(`Write ${RIGHT[name]}, with parentheses.`);
  });

  it.each(places)('a decorator without parentheses is refused on %s of a standard class, too [G551]', (_, source) => {
    expect(() => define(source, false)).toThrow(LockOptionsError);
    expect(() => define(source, false)).toThrow(`Write ${RIGHT[name]}, with parentheses.`);
  });
});

it('the refusal of a decorator without parentheses names the class and the member', () => {
  expect(() => define('class Orders { @Locked async pay() {} }')).toThrow(
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
