import { ModuleRef, type ModulesContainer } from '@nestjs/core';
import type { NestModule } from '../injection/decorated-methods.js';

/** The module whose `ModuleRef` this is. */
export function moduleOf(ref: ModuleRef, modules: ModulesContainer): NestModule {
  return [...modules.values()].find(({ providers }) => providers.get(ModuleRef)?.instance === ref)!;
}

/** The names of the modules that have this one among their imports. */
export function importersOf(module: NestModule, modules: ModulesContainer): string[] {
  const [core] = modules.values(); // Nest's own, the first of the global ones
  const importers = [...modules.values()].filter(({ imports }) => {
    const all = [...imports];
    // Nest adds the global ones to the imports of every module, behind those that are written there.
    return (module.isGlobal ? all.slice(0, all.indexOf(core!)) : all).includes(module);
  });
  // Lazy modules have the global ones first.
  return importers.length === 0 ? ['a lazy module'] : importers.map(({ name }) => name);
}

/** `A`, `A and B`, `A, B and C`. */
export function listed(names: readonly string[]): string {
  return names.length < 2 ? names.join() : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
}
