/**
 * Lists the files of the library that run code in one uncontended call of a method with `@Locked('order:{0}')` on one Redis,
 * by the precise coverage of V8: those of the built library, after a first call has made what is made once.
 *
 *     npm run build && node bench/call-path.mjs
 */
import { realpathSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { startRedisServers } from './cell/redis-servers.mjs';
import { library, modules } from './contestants/library.mjs';
import { provideRedisServer } from './provide-redis-server.mjs';

// The Nest that the library finds: the bench has one of its own, for the peers.
const { resolve } = createRequire(new URL('../package.json', import.meta.url));
await import(resolve('reflect-metadata'));
const { Module } = await import(resolve('@nestjs/common'));
const { NestFactory } = await import(resolve('@nestjs/core'));
const { Locked, RedisLockModule } = await library('index.js');

class Orders {
  async pay(id) {
    return `paid ${id}`;
  }
}
Reflect.defineMetadata('design:returntype', Promise, Orders.prototype, 'pay');
const pay = Object.getOwnPropertyDescriptor(Orders.prototype, 'pay');
Object.defineProperty(Orders.prototype, 'pay', decorated(Locked('order:{0}'), pay));

await provideRedisServer();
const [server] = await startRedisServers(1);
try {
  class App {}
  Module({ imports: [RedisLockModule.forRoot({ redis: `redis://127.0.0.1:${server.port}` })], providers: [Orders] })(
    App,
  );
  const app = await NestFactory.createApplicationContext(App, { logger: ['error'], abortOnError: false });
  const orders = app.get(Orders);
  await orders.pay('1');
  const files = await filesRunBy(() => orders.pay('2'));
  console.log(files.join('\n'));
  console.error(`${files.length} files`);
  await app.close();
} finally {
  server.kill();
}

function decorated(decorate, descriptor) {
  return decorate(Orders.prototype, 'pay', descriptor) ?? descriptor;
}

/** The files of the library of which some function was called. */
async function filesRunBy(call) {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  await call();
  const { result } = await session.post('Profiler.takePreciseCoverage');
  session.disconnect();
  const folder = pathToFileURL(realpathSync(fileURLToPath(modules))).href + '/';
  return result
    .filter(({ url, functions }) => url.startsWith(folder) && functions.some(wasCalled))
    .map(({ url }) => url.slice(folder.length).replace(/\.js$/, '.ts'))
    .sort();
}

function wasCalled({ ranges: [whole] }) {
  return whole.count > 0;
}
