import { isDeepStrictEqual } from 'node:util';
import { Logger } from '@nestjs/common';
import type { ModulesContainer } from '@nestjs/core';
import { isClient } from '../../stores/redis/client/check-source.js';
import { LockOptionsError } from '../../api/errors.js';
import type { ResolvedOptions } from '../../compose/redis-lock-options.js';
import type { RedisSource } from '../../stores/redis/client/source.js';
import type { LockService } from '../../core/service/lock.service.js';
import { importersOf, listed, type NestModule } from './nest-modules.js';

interface Registration {
  options: ResolvedOptions;
  module: NestModule;
  service: Promise<LockService>;
}

/** What each application has registered, by name. */
const registrations = new WeakMap<ModulesContainer, Map<string, Registration>>();

/**
 * Opens the service of a registration. Modules that register the same get one service: locks in memory keep them out of
 * each other's way, and work that holds a lock through one of them enters through the other.
 * @throws LockOptionsError when the application has a registration of this name with different options
 */
export function register(
  options: ResolvedOptions,
  module: NestModule,
  modules: ModulesContainer,
  open: () => Promise<LockService>,
): Promise<LockService> {
  const ofApplication = registrations.get(modules) ?? new Map<string, Registration>();
  registrations.set(modules, ofApplication);
  const name = options.connection;
  const first = ofApplication.get(name);
  if (first) {
    const differing = differences(first.options, options);
    if (differing.length === 0) return first.service;
    const importers = [first.module, module].flatMap((each) => importersOf(each, modules));
    throw twice(name, [...new Set(importers)], differing);
  }
  const service = open();
  ofApplication.set(name, { options, module, service });
  service.catch(() => ofApplication.delete(name)); // a lazy module may be loaded again
  return service;
}

/** @throws LockOptionsError for a `RedisLockModule` that is imported as it is */
export function refuseBare(bare: NestModule, modules: ModulesContainer): never {
  const importers = importersOf(bare, modules);
  const [registered] = [...modules.values()].filter((module) => module !== bare && module.metatype === bare.metatype);
  const by = registered && listed(importersOf(registered, modules));
  const advice =
    registered === undefined
      ? 'Write RedisLockModule.forRoot({ … }) or forRootAsync({ … }) there.'
      : registered.isGlobal
        ? `${by} registers it for all modules: remove it from the imports of ${listed(importers)}.`
        : `${by} registers it: keep in a constant what its forRoot returns, and import that.`;
  const error = new LockOptionsError(
    `${listed(importers)} ${importers.length === 1 ? 'imports' : 'import'} RedisLockModule without forRoot, which ` +
      `registers nothing. ${advice}`,
  );
  // Nest may find first that a class has no LockService, and end the start with that: then this stands beside it.
  if (!registered?.isGlobal) new Logger('RedisLockModule').error(error.message);
  throw error;
}

function twice(name: string, importers: string[], differing: string[]): LockOptionsError {
  return new LockOptionsError(
    `${listed(importers)} ${importers.length === 1 ? 'registers' : 'register'} RedisLockModule under one name, "${name}", ` +
      `but with different options (${differing.join(', ')}): a lock of one would not keep out the other. Register it ` +
      'once, or give one of them a name.',
  );
}

/** The names of the options that differ. */
function differences(one: ResolvedOptions, other: ResolvedOptions): string[] {
  const { backend, ...settings } = one;
  const { backend: otherBackend, ...otherSettings } = other;
  const names = Object.keys({ ...settings, ...otherSettings }) as (keyof typeof settings)[];
  const differing: string[] = names.filter((name) => !isDeepStrictEqual(settings[name], otherSettings[name]));
  const [sources, otherSources] = [sourcesOf(backend), sourcesOf(otherBackend)];
  const isSame =
    backend.kind === otherBackend.kind &&
    sources.length === otherSources.length &&
    sources.every((source, index) => isSameSource(source, otherSources[index]!));
  return isSame ? differing : [...new Set([backend.kind, otherBackend.kind, ...differing])];
}

function sourcesOf(backend: ResolvedOptions['backend']): RedisSource[] {
  return backend.kind === 'redis' ? [backend.source] : backend.kind === 'redlock' ? backend.sources : [];
}

/** Two clients are two, whatever they are connected to. */
function isSameSource(one: RedisSource, other: RedisSource): boolean {
  return one === other || (!isClient(one) && !isClient(other) && isDeepStrictEqual(one, other));
}
