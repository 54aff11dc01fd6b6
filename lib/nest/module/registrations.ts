import { Logger } from '@nestjs/common';
import { ModuleRef, type ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';
import { inWords, quoted } from '../../api/printable.js';
import type { ComposedLocks } from '../../compose/composition.js';
import type { LockService } from '../../core/service/lock.service.js';
import { ApplicationStart } from '../injection/application-start.js';
import type { NestModule } from '../injection/decorated-methods.js';

interface Registration {
  /** The name of its lock module. */
  kind: string;
  locks: ComposedLocks;
  module: NestModule;
  service: Promise<LockService>;
}

/** The registrations of each application, by name. */
const registrations = new WeakMap<ModulesContainer, Map<string, Registration>>();

/**
 * Opens the service of a registration. Modules with the same registration share one service. So locks in memory work between them,
 * and work that holds a lock through one module may take it again through another.
 * @param kind name of the lock module
 * @throws LockOptionsError if the application has a registration of this name with different options
 */
export function register(
  kind: string,
  locks: ComposedLocks,
  module: NestModule,
  modules: ModulesContainer,
  open: () => Promise<LockService>,
): Promise<LockService> {
  const ofApplication = registrations.get(modules) ?? new Map<string, Registration>();
  registrations.set(modules, ofApplication);
  const name = locks.registration;
  const first = ofApplication.get(name);
  if (first) {
    const differing = first.locks.differencesFrom(locks);
    if (differing.length === 0) return first.service;
    const importers = [...new Set([first.module, module].flatMap((each) => importersOf(each, modules)))];
    const register = importers.length === 1 ? 'registers' : 'register';
    const [what, how, advice] =
      first.kind === kind
        ? [kind, `, but with different options (${differing.join(', ')})`, 'Register it once']
        : [inWords([first.kind, kind]), '', 'Keep one of them'];
    throw new LockOptionsError(
      `${inWords(importers)} ${register} ${what} under the same name, ${quoted(name)}${how}: their locks would not exclude ` +
        `each other. ${advice}, or give one of them a name.`,
    );
  }
  const service = open();
  ofApplication.set(name, { kind, locks, module, service });
  service.catch(() => ofApplication.delete(name)); // a lazy module may be loaded again
  ApplicationStart.of(modules).opens(service);
  return service;
}

/** Returns the module of a `ModuleRef`. */
export function moduleOf(ref: ModuleRef, modules: ModulesContainer): NestModule {
  return [...modules.values()].find(({ providers }) => providers.get(ModuleRef)?.instance === ref)!;
}

/** @throws LockOptionsError for a lock module that is imported without `forRoot` */
export function refuseBare(kind: string, bare: NestModule, modules: ModulesContainer): never {
  const importers = importersOf(bare, modules);
  const [registered] = [...modules.values()].filter((module) => module !== bare && module.metatype === bare.metatype);
  const by = registered && inWords(importersOf(registered, modules));
  const advice =
    registered === undefined
      ? `Write ${kind}.forRoot({ … }) or forRootAsync({ … }) there.`
      : registered.isGlobal
        ? `${by} registers it for all modules: remove it from the imports of ${inWords(importers)}.`
        : `${by} registers it: keep the result of its forRoot in a constant, and import that.`;
  const error = new LockOptionsError(
    `${inWords(importers)} ${importers.length === 1 ? 'imports' : 'import'} ${kind} without forRoot, which ` +
      `registers nothing. ${advice}`,
  );
  // Nest may fail the start earlier, because a class has no LockService: this log entry then shows the cause.
  if (!registered?.isGlobal) new Logger(kind).error(error.message);
  void ApplicationStart.of(modules).refuse();
  throw error;
}

/** Returns the names of the modules that import this one. */
function importersOf(module: NestModule, modules: ModulesContainer): string[] {
  const [core] = modules.values(); // Nest's own module, the first global one
  const importers = [...modules.values()].filter(({ imports }) => {
    const all = [...imports];
    // Nest appends the global modules to the imports of every module.
    return (module.isGlobal ? all.slice(0, all.indexOf(core!)) : all).includes(module);
  });
  // The imports of a lazy module begin with the global modules, so the filter above does not find it.
  return importers.length === 0 ? ['a lazy module'] : importers.map(({ name }) => name);
}
