import type { INestApplication, LoggerService, ModuleMetadata } from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test, type TestingModule } from '@nestjs/testing';
import { LockService, type LockEvent } from 'nest-redis-lock';
import { afterAll, beforeAll, beforeEach, onTestFinished } from 'vitest';
import { lockModule, type LockOptions } from './lock-module.js';

export type { LockOptions } from './lock-module.js';

/** Collects the log, instead of printing it. */
export class RecordingLogger implements LoggerService {
  readonly lines: string[] = [];

  readonly debugged: string[] = [];

  log(): void {}

  debug(message: unknown): void {
    this.debugged.push(String(message));
  }

  error(message: unknown): void {
    this.lines.push(`error ${message}`);
  }

  warn(message: unknown): void {
    this.lines.push(`warn ${message}`);
  }
}

export interface TestApp {
  app: INestApplication;
  /** Empty unless it listens. */
  url: string;
  locks: LockService;
  /** The locked keys, in order, since the start. */
  acquired: string[];
  /** The events of the locks since the start. */
  events: LockEvent[];
  log: RecordingLogger;
}

/** The HTTP servers for which Nest has adapters: each application needs its own adapter. */
export const HTTP_ADAPTERS: [name: string, makeAdapter: () => AbstractHttpAdapter][] = [
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
];

/** Starts an application with the lock module, by default with locks in memory, and Express. The caller closes it. */
export async function openApp(
  metadata: ModuleMetadata,
  lock: LockOptions = { memory: true },
  configure?: (app: INestApplication) => unknown,
  adapter: AbstractHttpAdapter = new ExpressAdapter(),
): Promise<TestApp> {
  const log = new RecordingLogger();
  const imports = [await lockModule(lock), ...(metadata.imports ?? [])];
  const testing = await Test.createTestingModule({ ...metadata, imports })
    .setLogger(log)
    .compile();
  const app = testing.createNestApplication(adapter);
  await configure?.(app);
  await app.init();
  const locks = app.get(LockService);
  const events: LockEvent[] = [];
  const acquired: string[] = [];
  locks.events$.subscribe((event) => {
    events.push(event);
    if (event.type === 'acquired') acquired.push(event.key);
  });
  return { app, url: '', locks, acquired, events, log };
}

/** Like `openApp`, closed when the test has finished. */
export async function makeApp(...parts: Parameters<typeof openApp>): Promise<TestApp> {
  const made = await openApp(...parts);
  onTestFinished(() => made.app.close());
  return made;
}

/** Like `makeApp`, listening on a free port. */
export async function startApp(...parts: Parameters<typeof openApp>): Promise<TestApp> {
  const made = await makeApp(...parts);
  await made.app.listen(0, '127.0.0.1');
  return { ...made, url: await made.app.getUrl() };
}

/** Like `startApp`, for all tests of a group: its records begin again with each of them. */
export function sharedApp(...parts: Parameters<typeof openApp>): TestApp {
  const test = {} as TestApp;
  beforeAll(async () => {
    Object.assign(test, await openApp(...parts));
    // A server that closes idle connections could close one that the next test uses.
    test.app.getHttpServer().keepAliveTimeout = 0;
    await test.app.listen(0, '127.0.0.1');
    test.url = await test.app.getUrl();
  });
  beforeEach(() => {
    for (const records of [test.acquired, test.events, test.log.lines, test.log.debugged]) records.length = 0;
  });
  afterAll(() => (test as Partial<TestApp>).app?.close());
  return test;
}

/** Starts an application without a server and without the lock module, closed when the test has finished. */
export async function startModules(metadata: ModuleMetadata, log = new RecordingLogger()): Promise<TestingModule> {
  const app = await Test.createTestingModule(metadata).setLogger(log).compile();
  await app.init();
  onTestFinished(() => app.close());
  return app;
}

/** Posts JSON. */
export function post(url: string, body: unknown, init: RequestInit = {}): Promise<Response> {
  const headers = { 'content-type': 'application/json', ...init.headers };
  return fetch(url, { method: 'POST', body: JSON.stringify(body), ...init, headers });
}
