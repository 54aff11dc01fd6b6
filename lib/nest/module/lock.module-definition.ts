import { ConfigurableModuleBuilder } from '@nestjs/common';
import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { DecoratorChecksModule } from './decorator-checks.module.js';
import { lockServiceProvider, type LockModuleKind } from './lock-service.provider.js';
import { LockShutdownModule } from './lock-shutdown.module.js';
import { LeaderModule } from '../leader/leader.module.js';
import { lockedInterceptorOf } from '../locked/locked.interceptor.js';
import { getLockServiceToken } from '../injection/tokens.js';

/** Settings beside the options, in every form of registration. */
export interface LockModuleExtras {
  /** Whether all modules of the application may inject the service without importing this module. @default true */
  isGlobal?: boolean;
  /** Name of this registration, for a second, independent lock service. @default 'default' */
  name?: string;
}

const ASYNC_FORMS = ['useFactory', 'useClass', 'useExisting'] as const;
const ASYNC_OPTIONS = [...ASYNC_FORMS, 'inject', 'imports', 'provideInjectionTokensFrom', 'isGlobal', 'name'];

/**
 * The class that a lock module extends.
 * @param optionsToken the injection token of a registration's options in its module
 * @param factoryMethod the method of a `useClass` or `useExisting` that makes the options
 */
export function lockModuleDefinition<Options extends object, FactoryMethod extends string>(
  kind: LockModuleKind<Options>,
  optionsToken: symbol,
  factoryMethod: FactoryMethod,
) {
  return new ConfigurableModuleBuilder<Options>({ optionsInjectionToken: optionsToken })
    .setClassMethodName('forRoot')
    .setFactoryMethodName(factoryMethod)
    .setExtras<LockModuleExtras>({ isGlobal: true, name: undefined }, (definition, extras) => {
      const { isGlobal = true, name } = checked(extras);
      const interceptor = lockedInterceptorOf(name);
      return {
        ...definition,
        global: isGlobal,
        imports: [...(definition.imports ?? []), LockShutdownModule, DecoratorChecksModule, LeaderModule],
        providers: [...(definition.providers ?? []), lockServiceProvider(kind, optionsToken, name), interceptor],
        exports: [getLockServiceToken(name), interceptor],
      };
    })
    .build();
}

/** @throws LockOptionsError when the argument of `forRoot` or `forRootAsync` is no object */
export function anObject<T>(kind: string, method: string, options: T): T {
  if (typeof options === 'object' && options !== null) return options;
  throw new LockOptionsError(`${kind}.${method} needs an object with options: got ${typeof options}.`);
}

/** @throws LockOptionsError unless `forRootAsync` was given exactly one source of options */
export function anAsyncForm<T extends Partial<Record<(typeof ASYNC_FORMS)[number], unknown>>>(
  kind: string,
  options: T,
): T {
  const given = Object.keys(anObject(kind, 'forRootAsync', options));
  const unknown = given.find((name) => !ASYNC_OPTIONS.includes(name));
  if (unknown !== undefined) {
    throw new LockOptionsError(
      `${kind}.forRootAsync has no option ${quoted(unknown)}: expected ${ASYNC_OPTIONS.join(', ')}. ` +
        'The options of forRoot belong in what the factory returns.',
    );
  }
  const forms = ASYNC_FORMS.filter((form) => options[form] !== undefined);
  if (forms.length !== 1) {
    throw new LockOptionsError(
      `${kind}.forRootAsync needs exactly one of ${ASYNC_FORMS.join(', ')}: got ${forms.join(' and ') || 'none of them'}.`,
    );
  }
  return options;
}

function checked(extras: LockModuleExtras): LockModuleExtras {
  const { isGlobal, name }: { isGlobal?: unknown; name?: unknown } = extras;
  if (isGlobal !== undefined && typeof isGlobal !== 'boolean') {
    throw new LockOptionsError(`isGlobal must be true or false: got ${JSON.stringify(isGlobal)}.`);
  }
  if (name !== undefined && (typeof name !== 'string' || name === '')) {
    throw new LockOptionsError(`name of a registration must be a non-empty string: got ${JSON.stringify(name)}.`);
  }
  return extras;
}
