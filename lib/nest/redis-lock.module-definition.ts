import { ConfigurableModuleBuilder } from '@nestjs/common';
import type { RedisLockModuleOptions } from '../options.js';
import { lockServiceProvider } from './lock-service.provider.js';
import { getLockServiceToken } from './tokens.js';

/** What is said beside the options, in every form of registration. */
export interface RedisLockModuleExtras {
  /** Whether all modules of the application may inject the service without importing this module. @default true */
  isGlobal?: boolean;
  /** Name of this registration, for a second, independent lock service. @default 'default' */
  name?: string;
}

const OPTIONS = Symbol('RedisLockModuleOptions');

export const { ConfigurableModuleClass } = new ConfigurableModuleBuilder<RedisLockModuleOptions>({
  optionsInjectionToken: OPTIONS,
})
  .setClassMethodName('forRoot')
  .setFactoryMethodName('createRedisLockOptions')
  .setExtras<RedisLockModuleExtras>({ isGlobal: true, name: undefined }, (definition, { isGlobal = true, name }) => ({
    ...definition,
    global: isGlobal,
    providers: [...(definition.providers ?? []), lockServiceProvider(OPTIONS, name)],
    exports: [getLockServiceToken(name)],
  }))
  .build();
