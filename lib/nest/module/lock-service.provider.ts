import { Logger, type FactoryProvider, type InjectionToken } from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import { diagnosisOf } from '../../core/backend/report.js';
import { formatDiagnosis } from '../../api/diagnosis.js';
import { adviceFor, type NodeError } from '../../api/errors.js';
import { resolveOptions, type RedisLockModuleOptions, type ResolvedOptions } from '../../compose/redis-lock-options.js';
import { LockService } from '../../core/service/lock.service.js';
import { Shutdown } from '../../core/service/shutdown.js';
import { logTroubles } from './log-troubles.js';
import { moduleOf } from './nest-modules.js';
import { register } from './registrations.js';
import { getLockServiceToken } from '../injection/tokens.js';

/** Makes the service of one registration when the application starts. */
export function lockServiceProvider(optionsToken: InjectionToken, name?: string): FactoryProvider<LockService> {
  return {
    provide: getLockServiceToken(name),
    inject: [optionsToken, ModulesContainer, ModuleRef, Shutdown],
    useFactory: async (
      given: RedisLockModuleOptions,
      modules: ModulesContainer,
      ref: ModuleRef,
      shutdown: Shutdown,
    ) => {
      const options = resolveOptions(given, name);
      return register(options, moduleOf(ref, modules), modules, () => open(options, shutdown, name));
    },
  };
}

/** Opens the service, and logs what its operator should know. */
async function open(options: ResolvedOptions, shutdown: Shutdown, name?: string): Promise<LockService> {
  const [service, problems] = await LockService.open(options, shutdown);
  const logger = new Logger(name === undefined ? 'LockService' : `LockService(${name})`);
  if (options.backend.kind === 'redlock' && options.backend.sources.length % 2 === 0) {
    const count = options.backend.sources.length;
    logger.warn(`redlock has ${count} nodes, which tolerate no more failures than ${count - 1}: use an odd number.`);
  }
  if (!options.lazyConnect && options.backend.kind !== 'memory') await examine(service, problems, logger);
  logTroubles(service, logger);
  return service;
}

/** Checks the servers before the application relies on them. */
async function examine(service: LockService, problems: readonly NodeError[], logger: Logger): Promise<void> {
  const report = await service.report();
  if (report.refusal) {
    await service.close();
    throw report.refusal;
  }
  const [worst] = report.findings; // errors come first
  const level = worst === undefined ? 'log' : worst.severity === 'error' ? 'error' : 'warn';
  logger[level](formatDiagnosis(diagnosisOf(service.connection, report)));
  const reachable = report.nodes.filter((node) => node.reachable).map(({ name }) => name);
  const abstaining = problems.filter(({ node }) => reachable.includes(node));
  if (abstaining.length > 0) {
    const nodes = abstaining.map(({ message }) => message).join('; ');
    logger.warn(`Redlock nodes do not vote yet: ${nodes}. ${adviceFor(abstaining)}`);
  }
}
