import { ConfigurableModuleBuilder } from '@nestjs/common';
import { LockOptionsError } from '../../api/errors.js';
import type { RedisLockModuleOptions } from '../../compose/redis-lock-options.js';
import { lockServiceProvider } from './lock-service.provider.js';
import { LockShutdownModule } from './lock-shutdown.module.js';
import { lockedInterceptorOf } from '../locked/locked.interceptor.js';
import { getLockServiceToken } from '../injection/tokens.js';

/** What is said beside the options, in every form of registration. */
export interface RedisLockModuleExtras {
  /** Whether all modules of the application may inject the service without importing this module. @default true */
  isGlobal?: boolean;
  /** Name of this registration, for a second, independent lock service. @default 'default' */
  name?: string;
}

/** The options of a registration, in its module. */
export const OPTIONS = Symbol('RedisLockModuleOptions');

export const { ConfigurableModuleClass, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } =
  new ConfigurableModuleBuilder<RedisLockModuleOptions>({ optionsInjectionToken: OPTIONS })
    .setClassMethodName('forRoot')
    .setFactoryMethodName('createRedisLockOptions')
    .setExtras<RedisLockModuleExtras>({ isGlobal: true, name: undefined }, (definition, extras) => {
      const { isGlobal = true, name } = checked(extras);
      const interceptor = lockedInterceptorOf(name);
      return {
        ...definition,
        global: isGlobal,
        imports: [...(definition.imports ?? []), LockShutdownModule],
        providers: [...(definition.providers ?? []), lockServiceProvider(OPTIONS, name), interceptor],
        exports: [getLockServiceToken(name), interceptor],
      };
    })
    .build();

function checked(extras: RedisLockModuleExtras): RedisLockModuleExtras {
  const { isGlobal, name }: { isGlobal?: unknown; name?: unknown } = extras;
  if (isGlobal !== undefined && typeof isGlobal !== 'boolean') {
    throw new LockOptionsError(`isGlobal must be true or false: got ${JSON.stringify(isGlobal)}.`);
  }
  if (name !== undefined && (typeof name !== 'string' || name === '')) {
    throw new LockOptionsError(`name of a registration must be a non-empty string: got ${JSON.stringify(name)}.`);
  }
  return extras;
}
