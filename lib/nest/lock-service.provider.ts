import { Logger, type FactoryProvider, type InjectionToken } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import type { RedisLockModuleOptions } from '../options.js';
import { resolveOptions } from '../resolve-options.js';
import { LockService } from '../service/lock.service.js';
import { getLockServiceToken } from './tokens.js';

/** Makes the service of one registration when the application starts, and logs what its operator should know. */
export function lockServiceProvider(optionsToken: InjectionToken, name?: string): FactoryProvider<LockService> {
  return {
    provide: getLockServiceToken(name),
    inject: [optionsToken, ModulesContainer],
    useFactory: async (given: RedisLockModuleOptions, modules: ModulesContainer) => {
      const options = resolveOptions(given, name);
      const [service, unreachable] = await LockService.open(options);
      const logger = new Logger(name === undefined ? LockService.name : `${LockService.name}(${name})`);
      if (options.backend.kind === 'redlock' && options.backend.sources.length % 2 === 0) {
        const count = options.backend.sources.length;
        logger.warn(
          `redlock has ${count} nodes, which tolerate no more failures than ${count - 1}: use an odd number.`,
        );
      }
      const token = getLockServiceToken(name);
      if ([...modules.values()].filter((module) => module.providers.has(token)).length > 1) {
        logger.warn(
          'RedisLockModule is registered more than once under this name: locks of one are not those of the other, if ' +
            'their options differ. Register it once, or give one of them a name.',
        );
      }
      for (const error of unreachable) logger.warn(`A Redlock node cannot be reached: ${error.message}.`);
      logTroubles(service, logger);
      return service;
    },
  };
}

function logTroubles(service: LockService, logger: Logger): void {
  service.events$.subscribe((event) => {
    if (event.type === 'lost') {
      logger.error(`Lock "${event.key}" (fencing token ${event.fencingToken}) was lost: ${event.reason}.`);
    } else if (event.type === 'closing') {
      logger.log(`Waiting for lock "${event.key}" to be released, for up to ${event.timeoutMs} ms.`);
    } else if (event.type === 'release-failed') {
      const causes = event.causes.map((cause) => cause.message).join('; ');
      logger.warn(`The release of lock "${event.key}" was not confirmed and is repeated: ${causes}.`);
    }
  });
}
