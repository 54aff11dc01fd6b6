import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { type Lock, LockError, type LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { randomOf } from '../support/random.js';
import { blockEventLoop, proxyTo, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

/** So many grants are looked at, however busy the machine is. */
const ENOUGH = 30;

/** Sees every grant: at that moment no other lock of the key may be held, and the token must be greater than all before. */
class Witness {
  readonly #granted = new Map<string, Lock[]>();
  readonly violations: string[] = [];
  grants = 0;

  see(lock: Lock): void {
    const before = this.#granted.get(lock.key) ?? [];
    this.grants++;
    for (const other of before) {
      if (other.isHeld) this.violations.push(`${lock.key}: ${other.fencingToken} is held when ${lock.fencingToken} is`);
      if (other.fencingToken >= lock.fencingToken) this.violations.push(`${lock.key}: tokens do not grow`);
    }
    this.#granted.set(lock.key, [...before.slice(-20), lock]);
  }
}

it.each([1, 2])(
  'no two locks of a key are held at once, whatever their holders, the network and the event loop do (seed %i) [G2]',
  async (seed) => {
    const random = randomOf(seed);
    const below = (limit: number) => Math.floor(random() * limit);
    const server = await redisServer();
    const proxies = await Promise.all([1, 2, 3].map(() => proxyTo(server)));
    const services = await Promise.all(proxies.map(({ url }) => openLocks({ redis: url, commandTimeoutMs: 100 })));
    const witness = new Witness();
    const unexpected: unknown[] = [];

    const hold = async (lock: Lock) => {
      witness.see(lock);
      if (random() < 0.3) await lock.extend(40 + below(200));
      if (random() < 0.05) blockEventLoop(60);
      await sleep(below(40));
    };
    const worker = async (locks: LockService) => {
      for (let round = 0; round < 15 || witness.grants <= ENOUGH; round++) {
        const options = {
          ttlMs: 40 + below(200),
          waitMs: below(300),
          watchdog: random() < 0.6,
          signal: random() < 0.2 ? AbortSignal.timeout(below(100)) : undefined,
        };
        try {
          const key = `key ${below(3)}`;
          if (random() < 0.5) await locks.withLock(key, options, hold);
          else {
            const lock = await locks.acquire(key, options);
            await hold(lock).finally(() => (options.watchdog || random() < 0.5 ? lock.release() : undefined));
          }
        } catch (error) {
          const isExpected = error instanceof LockError || (error as Error).name === 'TimeoutError';
          if (!isExpected) unexpected.push(error);
          // A lost connection is told at once: without a pause this loop would never let it be made again.
          await sleep(1);
        }
      }
    };
    let running = true;
    const nemesis = async () => {
      while (running) {
        const proxy = proxies[below(3)]!;
        await sleep(below(60));
        if (random() < 0.3) {
          proxy.cut();
        } else {
          proxy.hold();
          await sleep(below(120));
          proxy.release();
        }
      }
    };
    const disturbing = nemesis();
    await Promise.all(services.flatMap((locks) => Array.from({ length: 6 }, () => worker(locks))));
    running = false;
    await disturbing;

    expect(unexpected).toEqual([]);
    expect(witness.violations).toEqual([]);
    expect(witness.grants).toBeGreaterThan(ENOUGH);
    await Promise.all(services.map((locks) => locks.onApplicationShutdown()));
    expect(services.map((locks) => locks.size)).toEqual([0, 0, 0]);
    await until(async () => (await server.keys('lock:{*}')).length === 0, { what: 'no key is left' });
  },
);
