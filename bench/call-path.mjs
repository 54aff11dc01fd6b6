/**
 * Lists the files of the built library that run code in one call of a method with `@Locked('order:{0}')`, by the precise
 * coverage of V8, after a first call has created what is created once. It follows a call without competition on one Redis,
 * on a Redlock and in PostgreSQL, a call with a permit, a call whose lock is lost, and a call that waits until another
 * service hands the lock over.
 *
 *     npm run build && node bench/call-path.mjs
 */
import { rejects } from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { runnerImport } from 'vite';
import { startRedisServers } from './cell/redis-servers.mjs';
import { library, modules, untilNodesVote } from './contestants/library.mjs';
import { provideRedisServer } from './provide-redis-server.mjs';

/** An extension finds the loss after a third of this time. New Redlock nodes vote after all of it, plus two seconds. */
const TTL_MS = 1_000;

// The library's own copy of Nest: the bench has another one for the peers.
const { resolve } = createRequire(new URL('../package.json', import.meta.url));
await import(resolve('reflect-metadata'));
const { Module } = await import(resolve('@nestjs/common'));
const { NestFactory } = await import(resolve('@nestjs/core'));
const { Limited, Locked, LockLostError, LockService, RedisLockModule } = await library('index.js');
const { SqlLockModule } = await library('sql/index.js');

class Orders {
  async pay(id) {
    return `paid ${id}`;
  }

  /** Works until its lock is lost. It causes the loss itself. */
  async lose(id) {
    const { signal } = this.locks.current();
    await control.del(`lock:{order:${id}}`);
    if (!signal.aborted) await once(signal, 'abort');
  }
}
decorate(Orders, 'pay', Locked('order:{0}'));
decorate(Orders, 'lose', Locked('order:{0}'));

/** In a class of its own, because a Redlock has no permits. */
class LimitedOrders {
  async pay(id) {
    return `paid ${id}`;
  }
}
decorate(LimitedOrders, 'pay', Limited('order:{0}', { limit: 2 }));

await provideRedisServer();
const servers = await startRedisServers(3);
const [{ control }] = servers;
const [redis, ...others] = servers.map(({ port }) => `redis://127.0.0.1:${port}`);
const folder = mkdtempSync(`${tmpdir()}/call-path-`);
const launcher = fileURLToPath(new URL('../servers/launch-postgres.ts', import.meta.url));
const { launchPostgres } = (await runnerImport(launcher, { configFile: false })).module;
const database = await launchPostgres({ dir: folder });

const WAYS = {
  'a call on one Redis': async () => {
    const app = await openApp({ redis });
    const files = await filesOf((id) => app.orders.pay(id));
    await app.close();
    return files;
  },

  'a call on a Redlock': async () => {
    const app = await openApp({ redlock: [redis, ...others], commandTimeoutMs: 5_000 });
    await untilNodesVote(app.locks);
    const files = await filesOf((id) => app.orders.pay(id));
    await app.close();
    return files;
  },

  'a loss': async () => {
    const app = await openApp({ redis });
    const files = await filesOf((id) => rejects(app.orders.lose(id), LockLostError));
    await app.close();
    return files;
  },

  'a hand-over': async () => {
    // Near the end of a short lease, the line would ask again by itself.
    const [app, holder] = [await openApp({ redis }), await openApp({ redis, ttlMs: 30_000 })];
    const files = await filesOf(async (id) => {
      const lock = await holder.locks.acquire(`order:${id}`);
      const paid = app.orders.pay(id);
      while ((await control.exists(`lock:{order:${id}}:queue`)) === 0);
      await lock.release();
      await paid;
    });
    await app.close();
    await holder.close();
    return files;
  },

  'a permit': async () => {
    const app = await openApp({ redis }, { Service: LimitedOrders });
    const files = await filesOf((id) => app.orders.pay(id));
    await app.close();
    return files;
  },

  'a lock in PostgreSQL': async () => {
    const postgres = `postgres://postgres@127.0.0.1:${database.port}/postgres`;
    const app = await openApp({ postgres, createTable: true, commandTimeoutMs: 5_000 }, { LockModule: SqlLockModule });
    const files = await filesOf((id) => app.orders.pay(id));
    await app.close();
    return files;
  },
};

try {
  for (const [way, follow] of Object.entries(WAYS)) {
    const files = await follow();
    console.log([`${way}: ${files.length} files`, ...files].join('\n  '));
  }
} finally {
  for (const server of servers) server.kill();
  database.process.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
}

function decorate({ prototype }, method, decorator) {
  Reflect.defineMetadata('design:returntype', Promise, prototype, method);
  const descriptor = Object.getOwnPropertyDescriptor(prototype, method);
  Object.defineProperty(prototype, method, decorator(prototype, method, descriptor) ?? descriptor);
}

async function openApp(source, { LockModule = RedisLockModule, Service = Orders } = {}) {
  class App {}
  const module = LockModule.forRoot({ ttlMs: TTL_MS, ...source });
  Module({ imports: [module], providers: [Service] })(App);
  const app = await NestFactory.createApplicationContext(App, { logger: false, abortOnError: false });
  const [orders, locks] = [app.get(Service), app.get(LockService)];
  orders.locks = locks;
  return { orders, locks, close: () => app.close() };
}

/**
 * The files of the library that run in each of several calls, after a first call. What else the process does runs in at
 * most one of them.
 */
async function filesOf(call) {
  await call('first');
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  const runs = [];
  for (const id of ['second', 'third', 'fourth']) {
    await session.post('Profiler.takePreciseCoverage'); // counts anew
    await call(id);
    const { result } = await session.post('Profiler.takePreciseCoverage');
    runs.push(result.filter(({ functions }) => functions.some(wasCalled)).map(({ url }) => url));
  }
  session.disconnect();
  const folder = pathToFileURL(realpathSync(fileURLToPath(modules))).href + '/';
  return runs[0]
    .filter((url) => url.startsWith(folder) && runs.every((urls) => urls.includes(url)))
    .map((url) => url.slice(folder.length).replace(/\.js$/, '.ts'))
    .sort();
}

function wasCalled({ ranges: [whole] }) {
  return whole.count > 0;
}
