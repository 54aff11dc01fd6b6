import { Inject, Logger, Module, type OnApplicationBootstrap, type OnModuleInit } from '@nestjs/common';
import { ApplicationConfig, ModulesContainer } from '@nestjs/core';
import { ApplicationStart } from '../injection/application-start.js';
import { hostsOf, notesOf, type Declared, type Host, type MethodNote } from '../injection/decorated-methods.js';
import { serviceIn } from '../injection/injected-service.js';
import { beginElection, leaderMethodsIn, type LeaderMethod } from '../leader/leader-methods.js';
import { lockedMethodOf } from '../locked/locked-method.js';
import { refuseOptions } from './refuse-options.js';
import { refuseRequestKeys } from './refuse-request-keys.js';

/**
 * Checks the decorated methods of an application at its start, for mistakes that otherwise only a call would reveal, or nothing. Then it
 * begins their elections. Every registration imports this module, and an application has one instance.
 */
@Module({})
export class DecoratedMethodsModule implements OnModuleInit, OnApplicationBootstrap {
  #leaders: readonly LeaderMethod[] = [];

  constructor(
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
    @Inject(ApplicationConfig) private readonly config: ApplicationConfig,
  ) {}

  /** Called when all instances exist. @throws LockOptionsError */
  async onModuleInit(): Promise<void> {
    const { modules, config } = this;
    const hosts = hostsOf(modules);
    try {
      refuseUninjected(hosts);
      refuseRequestKeys(hosts, { modules, config });
      refuseOptions(hosts, modules);
      const logger = new Logger('LockService');
      for (const warning of warningsOf(hosts)) logger.warn(warning);
      this.#leaders = leaderMethodsIn(hosts);
    } catch (error) {
      await ApplicationStart.of(modules).refuse();
      throw error;
    }
  }

  onApplicationBootstrap(): void {
    ApplicationStart.of(this.modules).succeeded();
    for (const method of this.#leaders) beginElection(method);
  }
}

/**
 * Refuses instances with locked methods that Nest did not create: they have no service, so each call would fail. It does not see
 * instances that are created later, such as request-scoped ones.
 * @throws LockOptionsError
 */
function refuseUninjected(hosts: readonly Host[]): void {
  for (const { module, wrapper, methods } of hosts.filter(({ wrapper }) => wrapper.isNotMetatype)) {
    const instance = wrapper.instance as object;
    for (const [{ property, method }] of methods) {
      const locked = method && lockedMethodOf(method);
      // For a key that uses the request, the interceptor acquires the lock, with its own service.
      if (!locked || locked.source.origin === 'request' || Object.hasOwn(instance, property)) continue;
      const { decorator, call } = locked.kind;
      const otherwise = `; or call ${call} in the method, without ${decorator}`;
      serviceIn(instance, locked.registration, `${locked.name} in ${module.name} is ${decorator}`, otherwise);
    }
  }
}

/** Returns the warnings about decorated methods that may not do what they seem to, without repetition. */
function warningsOf(hosts: readonly Host[]): Set<string> {
  // By name, since the provider may come from another copy of its package.
  const provided = new Set(hosts.map(({ wrapper }) => String(wrapper.name)));
  return new Set(
    hosts.flatMap(({ methods }) =>
      methods.flatMap((each) => [...undecorated(each), ...unscheduled(each[0], provided)]),
    ),
  );
}

/** Warns about a method that nothing calls, because a module is missing. */
function unscheduled({ name, method }: Declared, provided: ReadonlySet<string>): string[] {
  return (method ? notesOf(method) : []).flatMap(({ decorator, needs }) => {
    if (!needs || provided.has(needs.provider.name)) return [];
    return (
      `${name} is ${decorator}, but no module imports ${needs.module}: nothing calls the method. Add that module to the imports of ` +
      'the root module.'
    );
  });
}

/** Warns about a method without a decorator that overrides a decorated one, unless it has `@NotLocked`. */
function undecorated([first, ...overridden]: readonly [Declared, ...Declared[]]): string[] {
  if (!first.method || ofMethod(first).length > 0) return [];
  const base = overridden.find((each) => ofMethod(each).length > 0);
  const decorators = base ? ofMethod(base).filter(({ override }) => override !== undefined) : [];
  if (decorators.length === 0) return [];
  const callers = decorators.filter(({ override }) => override === 'is never called');
  const names = (callers.length > 0 ? callers : decorators).map(({ decorator }) => decorator).join(' and ');
  const effect =
    callers.length > 0
      ? 'only your own code calls it'
      : 'it runs without the decorator, except for what it calls with super';
  return [
    `${first.name} overrides ${base!.name}, which is ${names}, but has no such decorator: ${effect}. Decorate it too, or ` +
      'add @NotLocked() if this is intended.',
  ];
}

/** Returns the notes of decorators on the method itself, not on its parameters. */
function ofMethod({ method }: Declared): readonly MethodNote[] {
  const notes = method ? notesOf(method) : [];
  return notes.filter(({ decorator }) => decorator !== '@FencingToken');
}
