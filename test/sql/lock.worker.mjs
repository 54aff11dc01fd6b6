// A process that holds locks and waits for some. It can be killed, or close them, after which it must end by itself.
import { load, serve, settings } from '../support/serve-duties.mjs';

const { composeLocks } = await load('compose/composition.js');
const { SQL } = await load('compose/sql-lock-options.js');
const open = async () =>
  (
    await composeLocks(SQL, {
      postgres: settings.url,
      createTable: true,
      shutdownTimeoutMs: 0,
      commandTimeoutMs: 1_000,
    }).open()
  ).service;
const services = await Promise.all([1, 2, 3, 4].map(open));
const [locks, other] = services;
let waiting = 0;

serve({
  async holdAndWait() {
    const held = await locks.acquire('held');
    const waited = other.acquire('held', { waitMs: 30_000 });
    await new Promise((resolve) => setTimeout(resolve, 1_500)); // it mostly listens by then
    await held.release();
    await waited;
    await locks.acquire('kept');
  },
  wait(key) {
    void services[waiting++].acquire(key, { waitMs: 300_000 });
  },
  async close() {
    await Promise.all(services.map((each) => each.onApplicationShutdown()));
    process.removeAllListeners('disconnect');
    setImmediate(() => process.disconnect()); // after its answer
  },
});
