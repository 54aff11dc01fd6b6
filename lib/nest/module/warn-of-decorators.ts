import { Logger } from '@nestjs/common';
import type { ModulesContainer } from '@nestjs/core';
import { methodsOf, notesOf, prototypeOf, type Declared, type MethodNote } from '../injection/decorated-methods.js';

/** Logs a warning for each decorated method that may not do what it seems to, once. */
export function warnOfDecorators(modules: ModulesContainer): void {
  const all = [...modules.values()];
  // By name: an application may have another copy of the package of a provider, which does as well.
  const provided = new Set(all.flatMap(({ providers }) => [...providers.values()].map(({ name }) => String(name))));
  const warnings = new Set<string>();
  for (const host of all.flatMap(({ providers, controllers }) => [...providers.values(), ...controllers.values()])) {
    const prototype = prototypeOf(host);
    if (!prototype) continue;
    for (const declared of methodsOf(prototype).values()) {
      const override = undecorated(declared);
      if (override !== undefined) warnings.add(override);
      for (const warning of unscheduled(declared[0], provided)) warnings.add(warning);
    }
  }
  const logger = new Logger('RedisLockModule');
  for (const warning of warnings) logger.warn(warning);
}

/** What a method needs to be run, and the application has not. */
function unscheduled({ name, method }: Declared, provided: ReadonlySet<string>): string[] {
  return (method ? notesOf(method) : []).flatMap(({ decorator, needs }) => {
    if (!needs || provided.has(needs.provider.name)) return [];
    return (
      `${name} is ${decorator}, but no module imports ${needs.module}: it never runs by itself. Add that to the imports of ` +
      'the root module.'
    );
  });
}

/** A method without a decorator that overrides one with, unless that is said to be meant. */
function undecorated([first, ...overridden]: readonly Declared[]): string | undefined {
  if (!first?.method || ofMethod(first).length > 0) return undefined;
  const base = overridden.find((each) => ofMethod(each).length > 0);
  const decorators = base ? ofMethod(base).filter(({ override }) => override !== undefined) : [];
  if (decorators.length === 0) return undefined;
  const callers = decorators.filter(({ override }) => override === 'is never called');
  const names = (callers.length > 0 ? callers : decorators).map(({ decorator }) => decorator).join(' and ');
  const effect =
    callers.length > 0
      ? 'it is never called, unless by your own code'
      : 'it runs without, except for what it calls by super';
  return (
    `${first.name} overrides ${base!.name}, which is ${names}, but has no such decorator: ${effect}. Decorate it, too, or ` +
    'say that this is meant, with @NotLocked().'
  );
}

/** What decorators of the method itself say, not those of its parameters. */
function ofMethod({ method }: Declared): readonly MethodNote[] {
  const notes = method ? notesOf(method) : [];
  return notes.filter(({ decorator }) => decorator !== '@FencingToken');
}
