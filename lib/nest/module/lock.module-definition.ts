import { ConfigurableModuleBuilder, Inject, Logger, type FactoryProvider, type InjectionToken } from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { composeLocks, type ComposedLocks, type StoreKind } from '../../compose/composition.js';
import { checked, fits, isClass, isFunction, isOptions, invalidOption, type Check } from '../../core/options/checks.js';
import { withDefaults } from '../../core/options/option-rows.js';
import type { LockService } from '../../core/service/lock.service.js';
import { Shutdown } from '../../core/service/shutdown.js';
import { ApplicationStart } from '../injection/application-start.js';
import { getLockServiceToken } from '../injection/tokens.js';
import { lockedInterceptorOf } from '../locked/locked.interceptor.js';
import { DecoratedMethodsModule } from './decorated-methods.module.js';
import { LockShutdownModule } from './lock-shutdown.module.js';
import { logProblems } from './log-problems.js';
import { moduleOf, refuseBare, register } from './registrations.js';

/** What one lock module has of its own. */
export interface LockModuleKind<Options extends object> {
  /** The name for messages: a literal, since bundlers shorten the names of classes. */
  name: string;
  /** The kind of store that keeps its locks. */
  store: StoreKind<Options>;
}

/** The modules that every registration imports. An application has one instance of each. */
export const SHARED_MODULES = [LockShutdownModule, DecoratedMethodsModule];

/** Settings next to the options, in every form of registration. */
export interface LockModuleExtras {
  /** Whether all modules of the application may inject the service without importing this module. @default true */
  isGlobal?: boolean;
  /** Name of this registration, for a second, independent lock service. @default 'default' */
  name?: string;
}

const ASYNC_FORMS = ['useFactory', 'useClass', 'useExisting'] as const;
/** Mistakes for which Nest would fail with an unclear error. */
const ASYNC_CHECKS: Readonly<Record<string, Check>> = {
  useFactory: fits((value) => isFunction(value) && !isClass(value), 'a function that returns options'),
  useClass: fits((value) => isFunction(value) && 'prototype' in (value as object), 'a class that creates options'),
  imports: fits(Array.isArray, 'an array of modules'),
  inject: fits(Array.isArray, 'an array of tokens'),
};
const ASYNC_OPTIONS = [...ASYNC_FORMS, 'inject', 'imports', 'provideInjectionTokensFrom', 'isGlobal', 'name'];

/**
 * Makes the class that a lock module extends.
 * @param optionsToken the injection token of a registration's options in its module
 * @param factoryMethod the method of a `useClass` or `useExisting` class that makes the options
 */
export function lockModuleDefinition<Options extends object, FactoryMethod extends string>(
  kind: LockModuleKind<Options>,
  optionsToken: symbol,
  factoryMethod: FactoryMethod,
) {
  const built = new ConfigurableModuleBuilder<Options>({ optionsInjectionToken: optionsToken })
    .setClassMethodName('forRoot')
    .setFactoryMethodName(factoryMethod)
    .setExtras<LockModuleExtras>({ isGlobal: true, name: undefined }, (definition, extras) => {
      const { isGlobal, name } = withDefaults('forRoot', extras);
      const interceptor = lockedInterceptorOf(name);
      return {
        ...definition,
        global: isGlobal,
        imports: [...(definition.imports ?? []), ...SHARED_MODULES],
        providers: [...(definition.providers ?? []), lockServiceProvider(kind, optionsToken, name), interceptor],
        exports: [getLockServiceToken(name), interceptor],
      };
    })
    .build();
  class LockModule extends built.ConfigurableModuleClass {
    /** Called by Nest for each registration. */
    constructor(@Inject(ModulesContainer) modules: ModulesContainer, @Inject(ModuleRef) ref: ModuleRef) {
      super();
      const module = moduleOf(ref, modules);
      if (!module.providers.has(optionsToken)) refuseBare(kind.name, module, modules);
    }
  }
  return { ...built, ConfigurableModuleClass: LockModule as typeof built.ConfigurableModuleClass };
}

/** @throws LockOptionsError if the argument of `forRoot` or `forRootAsync` is not an object */
export function anObject<T>(method: string, options: T): T {
  if (isOptions(options)) return options;
  throw invalidOption(`the argument of ${method}`, options, 'an object with options');
}

/** @throws LockOptionsError unless `forRootAsync` gets exactly one source of options */
export function anAsyncForm<T extends Partial<Record<(typeof ASYNC_FORMS)[number], unknown>>>(
  method: string,
  options: T,
): T {
  const unknown = Object.keys(anObject(method, options)).find((name) => !ASYNC_OPTIONS.includes(name));
  if (unknown !== undefined) {
    throw new LockOptionsError(
      `${method} has no option ${quoted(unknown)}: expected ${ASYNC_OPTIONS.join(', ')}. ` +
        'The options of forRoot belong in what the factory returns.',
    );
  }
  const forms = ASYNC_FORMS.filter((form) => options[form] !== undefined);
  checked(options, ASYNC_CHECKS);
  if (forms.length === 1) return options;
  throw new LockOptionsError(
    `${method} needs exactly one of ${ASYNC_FORMS.join(', ')}: got ${forms.join(' and ') || 'none of them'}.`,
  );
}

/** Makes the service of one registration when the application starts. */
function lockServiceProvider<Options extends object>(
  kind: LockModuleKind<Options>,
  optionsToken: InjectionToken,
  name?: string,
): FactoryProvider<LockService> {
  return {
    provide: getLockServiceToken(name),
    inject: [optionsToken, ModulesContainer, ModuleRef, Shutdown],
    useFactory: async (given: Options, modules: ModulesContainer, ref: ModuleRef, shutdown: Shutdown) => {
      try {
        const locks = composeLocks(kind.store, given, name);
        return await register(kind.name, locks, moduleOf(ref, modules), modules, () => open(locks, shutdown, name));
      } catch (error) {
        void ApplicationStart.of(modules).refuse(); // not awaited, since another registration may still be connecting
        throw error;
      }
    },
  };
}

/** Opens the service, and logs its notices for the operator. */
async function open(locks: ComposedLocks, shutdown: Shutdown, name?: string): Promise<LockService> {
  const { service, notices } = await locks.open({ shutdown, examine: true });
  const logger = new Logger(name === undefined ? 'LockService' : `LockService(${name})`);
  for (const { level, message } of notices) logger[level](message);
  logProblems(service, logger);
  return service;
}
