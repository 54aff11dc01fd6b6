import { runInThisContext } from 'node:vm';
import { Fenced, InjectLockService, Locked, LockOptionsError } from 'nest-redis-lock';
import ts from 'typescript';
import { expect, it } from 'vitest';

/** Compiles a class as TypeScript does without experimentalDecorators, and defines it. */
function define(source: string): void {
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext };
  const { outputText } = ts.transpileModule(source, { compilerOptions });
  const run = runInThisContext(`(Fenced, InjectLockService, Locked) => {\n${outputText}\n}`) as (
    ...decorators: unknown[]
  ) => void;
  run(Fenced, InjectLockService, Locked);
}

it.each<[place: string, source: string, subject: string]>([
  ['a method', `class Orders { @Locked('x') async pay() {} }`, '@Locked on pay'],
  ['a static method', `class Orders { @Locked('x') static async pay() {} }`, '@Locked on pay'],
  ['a private method', `class Orders { @Locked('x') async #pay() {} }`, '@Locked on #pay'],
  [
    'a method named by a symbol',
    `class Orders { @Locked('x') async [Symbol.iterator]() {} }`,
    '@Locked on Symbol(Symbol.iterator)',
  ],
  ['a getter', `class Orders { @Locked('x') get pay() { return 1; } }`, '@Locked on pay'],
  ['a field', `class Orders { @Locked('x') pay = async () => {}; }`, '@Locked on pay'],
  ['a class', `@Locked('x') class Orders {}`, '@Locked on Orders'],
  ['a method with @Fenced', `class Orders { @Fenced('x:{params.id}') async pay() {} }`, '@Fenced on pay'],
  ['a class with @Fenced', `@Fenced('x:{params.id}') class Orders {}`, '@Fenced on Orders'],
  [
    'a field with @InjectLockService',
    `class Orders { @InjectLockService('billing') locks; }`,
    '@InjectLockService on locks',
  ],
])('%s that is compiled to a standard decorator names the options to compile with [G207]', (_, source, subject) => {
  expect(() => define(source)).toThrow(LockOptionsError);
  expect(() => define(source)).toThrow(
    `${subject} was compiled to a standard decorator, which Nest cannot read. ` +
      'Set "experimentalDecorators" and "emitDecoratorMetadata" to true in the compilerOptions of tsconfig.json ' +
      '(in .swcrc: "legacyDecorator" and "decoratorMetadata").',
  );
});
