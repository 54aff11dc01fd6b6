/**
 * Lists the files of the library that run code in one call of a method with `@Locked('order:{0}')`, by the precise coverage of
 * V8: those of the built library, after a first call has made what is made once. It follows a call that nobody competes with,
 * on one Redis and on a Redlock, one whose lock is lost, and one that waits until another service hands the lock over.
 *
 *     npm run build && node bench/call-path.mjs
 */
import { rejects } from 'node:assert/strict';
import { once } from 'node:events';
import { realpathSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { startRedisServers } from './cell/redis-servers.mjs';
import { library, modules, untilNodesVote } from './contestants/library.mjs';
import { provideRedisServer } from './provide-redis-server.mjs';

/** A loss is found by an extension, after a third of it; new nodes of a Redlock vote after all of it, and two seconds. */
const TTL_MS = 1_000;

// The Nest that the library finds: the bench has one of its own, for the peers.
const { resolve } = createRequire(new URL('../package.json', import.meta.url));
await import(resolve('reflect-metadata'));
const { Module } = await import(resolve('@nestjs/common'));
const { NestFactory } = await import(resolve('@nestjs/core'));
const { Locked, LockLostError, LockService, RedisLockModule } = await library('index.js');

class Orders {
  async pay(id) {
    return `paid ${id}`;
  }

  /** Works until its lock is lost, which it makes happen. */
  async lose(id) {
    const { signal } = this.locks.current();
    await control.del(`lock:{order:${id}}`);
    if (!signal.aborted) await once(signal, 'abort');
  }
}
lock('pay');
lock('lose');

await provideRedisServer();
const servers = await startRedisServers(3);
const [{ control }] = servers;
const [redis, ...others] = servers.map(({ port }) => `redis://127.0.0.1:${port}`);

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
    const [app, holder] = [await openApp({ redis }), await openApp({ redis })];
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
};

try {
  for (const [way, follow] of Object.entries(WAYS)) {
    const files = await follow();
    console.log([`${way}: ${files.length} files`, ...files].join('\n  '));
  }
} finally {
  for (const server of servers) server.kill();
}

function lock(method) {
  const { prototype } = Orders;
  Reflect.defineMetadata('design:returntype', Promise, prototype, method);
  const descriptor = Object.getOwnPropertyDescriptor(prototype, method);
  Object.defineProperty(prototype, method, Locked('order:{0}')(prototype, method, descriptor) ?? descriptor);
}

async function openApp(source) {
  class App {}
  const module = RedisLockModule.forRoot({ ...source, ttlMs: TTL_MS });
  Module({ imports: [module], providers: [Orders] })(App);
  const app = await NestFactory.createApplicationContext(App, { logger: false, abortOnError: false });
  const [orders, locks] = [app.get(Orders), app.get(LockService)];
  orders.locks = locks;
  return { orders, locks, close: () => app.close() };
}

/** The files of the library that run in each of some calls, after a first one: what else the process does runs in one at most. */
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
