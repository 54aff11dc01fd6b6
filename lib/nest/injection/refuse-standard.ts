import { LockOptionsError } from '../../api/errors.js';

/**
 * Refuses standard decorators (TC39), which get the member itself and a context: compilers without `experimentalDecorators`
 * make these. Nest needs the experimental kind, which gets a class and the name of a member.
 *
 * @param second the second argument of a decorator: the name of the member, `undefined` on a class, or the context
 * @throws LockOptionsError when it is a context
 */
export function refuseStandard(decorator: string, second: unknown): void {
  if (typeof second !== 'object' || second === null) return;
  const { name, kind } = second as { name?: string | symbol; kind?: string };
  throw new LockOptionsError(
    `${decorator} on ${String(name ?? kind)} was compiled to a standard decorator, which Nest cannot read. ` +
      'Set "experimentalDecorators" and "emitDecoratorMetadata" to true in the compilerOptions of tsconfig.json ' +
      '(in .swcrc: "legacyDecorator" and "decoratorMetadata").',
  );
}
