import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { MurLockModule, MurLockService } from 'murlock';
import { ENOUGH_ATTEMPTS } from './clients.mjs';
import { holdByUsing } from './hold-by-using.mjs';

/** It has no defaults: these are the options of its README, with enough attempts, and a log of errors only. */
export async function open({ ports: [port], ttlMs, settings = {} }) {
  const options = {
    redisOptions: { url: `redis://127.0.0.1:${port}` },
    wait: 1000,
    maxAttempts: ENOUGH_ATTEMPTS,
    logLevel: 'error',
    ignoreUnlockFail: false,
    failFastOnRedisError: false,
    blocking: false,
    ...settings.module,
  };
  class BenchModule {}
  Module({ imports: [MurLockModule.forRoot(options)] })(BenchModule);
  const app = await NestFactory.createApplicationContext(BenchModule, { logger: false });
  const service = app.get(MurLockService);
  return {
    acquire: (key) => holdByUsing((work) => service.runWithLock(key, ttlMs, work)),
    release: (lock) => lock.release(),
    /** It does not notify the work of a loss. */
    turn: (key, work) => service.runWithLock(key, ttlMs, () => work({ held: () => true })),
    close: () => app.close(),
  };
}
