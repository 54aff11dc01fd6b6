import { Logger, type FactoryProvider, type InjectionToken } from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import type { ComposedLocks, LockComposition } from '../../compose/composition.js';
import type { LockService } from '../../core/service/lock.service.js';
import { Shutdown } from '../../core/service/shutdown.js';
import { logTroubles } from './log-troubles.js';
import { moduleOf } from './nest-modules.js';
import { register } from './registrations.js';
import { getLockServiceToken } from '../injection/tokens.js';

/** The particulars of one lock module. */
export interface LockModuleKind<Options> {
  /** For messages: a literal, since bundlers shorten the names of classes. */
  name: string;
  /** Opens its locks. */
  compose: LockComposition<Options>;
}

/** Makes the service of one registration when the application starts. */
export function lockServiceProvider<Options>(
  kind: LockModuleKind<Options>,
  optionsToken: InjectionToken,
  name?: string,
): FactoryProvider<LockService> {
  return {
    provide: getLockServiceToken(name),
    inject: [optionsToken, ModulesContainer, ModuleRef, Shutdown],
    useFactory: async (given: Options, modules: ModulesContainer, ref: ModuleRef, shutdown: Shutdown) => {
      const locks = kind.compose(given, name);
      return register(kind.name, locks, moduleOf(ref, modules), modules, () => open(locks, shutdown, name));
    },
  };
}

/** Opens the service, and logs its notices for the operator. */
async function open(locks: ComposedLocks, shutdown: Shutdown, name?: string): Promise<LockService> {
  const { service, notices } = await locks.open({ shutdown, examine: true });
  const logger = new Logger(name === undefined ? 'LockService' : `LockService(${name})`);
  for (const { level, message } of notices) logger[level](message);
  logTroubles(service, logger);
  return service;
}
