import { Module } from '@nestjs/common';
import { ConfigurableModuleClass } from './redis-lock.module-definition.js';

/**
 * Provides `LockService`, and with it what `@Locked` needs.
 *
 * `forRoot({ redis: 'redis://localhost:6379' })`, `forRoot({ redlock: [...] })`, `forRoot({ memory: true })`, or
 * `forRootAsync({ imports, inject, useFactory | useClass | useExisting })`; each with `isGlobal` (default true) and
 * `name` (for a second registration) beside.
 */
@Module({})
export class RedisLockModule extends ConfigurableModuleClass {}
