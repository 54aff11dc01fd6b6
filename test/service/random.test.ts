import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import {
  type AcquireOptions,
  type Lock,
  LockContendedError,
  LockError,
  type LockService,
  LockUnavailableError,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { randomOf } from '../support/random.js';
import { RedisServer } from '../support/redis-server.js';
import { blockEventLoop, proxyTo, redisServer } from '../support/stage.js';
import { keysOfLocks } from '../support/stored.js';
import { until } from '../support/until.js';

/** It could not be served in time: either other calls held the lock, or a request to Redis was under way. */
function isOver(error: unknown): boolean {
  return (
    error instanceof LockContendedError ||
    (error instanceof LockUnavailableError && /waitMs has passed/.test(error.message))
  );
}

const BACKENDS: [string, (server: RedisServer) => RedisLockModuleOptions][] = [
  ['Redis', ({ url }) => ({ redis: url })],
  ['Redis, short turns', ({ url }) => ({ redis: url, cohortMs: 3 })],
  ['Redis, fair', ({ url }) => ({ redis: url, fair: true })],
  ['memory', () => ({ memory: true })],
];

describe.each(BACKENDS)('random calls on %s', (_name, optionsOf) => {
  it.each([1, 2, 3])('no turn is ever lost nor given twice, whatever happens (seed %i) [G129]', async (seed) => {
    const server = await redisServer();
    const random = randomOf(seed);
    const options = optionsOf(server);
    const services: LockService[] = [];
    for (let index = 0; index < (options.memory ? 1 : 3); index++) services.push(await openLocks(options));
    const tokens: number[] = [];
    const outcomes: Record<string, number> = { served: 0, aborted: 0, inVain: 0 };
    let [inside, most] = [0, 0];
    const reason = new Error('aborted');
    const one = async () => {
      const locks = services[Math.floor(random() * services.length)]!;
      const controller = new AbortController();
      const fate = random();
      const request: AcquireOptions = {
        ttlMs: [10_000, 20_000, 30_000][Math.floor(random() * 3)]!,
        waitMs: fate < 0.15 ? 0 : fate < 0.35 ? Math.ceil(random() * 40) : 60_000,
        watchdog: random() < 0.8,
        ...(fate > 0.75 && { signal: controller.signal }),
      };
      // Mostly soon: few calls wait longer than a few milliseconds.
      if (fate > 0.75) setTimeout(() => controller.abort(reason), random() ** 3 * 60);
      try {
        const lock = await locks.acquire('chaos', request);
        most = Math.max(most, ++inside);
        tokens.push(lock.fencingToken);
        if (random() < 0.3) await new Promise((resolve) => setTimeout(resolve, random() * 2));
        inside--;
        expect(await lock.release()).toBe(true);
        outcomes.served!++;
      } catch (error) {
        const kind = error === reason ? 'aborted' : isOver(error) ? 'inVain' : String(error);
        outcomes[kind] = (outcomes[kind] ?? 0) + 1;
      }
    };
    const calls: Promise<void>[] = [];
    for (let index = 0; index < 400; index++) {
      calls.push(one());
      if (random() < 0.2) await new Promise((resolve) => setTimeout(resolve, random() * 6));
    }
    await Promise.all(calls);
    expect(most).toBe(1);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
    expect(Object.keys(outcomes)).toEqual(['served', 'aborted', 'inVain']);
    expect(outcomes.served! + outcomes.aborted! + outcomes.inVain!).toBe(400);
    expect(Math.min(...Object.values(outcomes))).toBeGreaterThan(0);
    await until(() => services.every(({ size }) => size === 0), { what: 'nothing is kept' });
    await until(async () => (await keysOfLocks(server)).length === 0, { what: 'only the fencing counter is left' });
  });
});

/** This many grants are checked, however busy the machine is. */
const ENOUGH = 30;

/**
 * Sees every grant: at that moment no other lock of the key may be held, and the token must be larger than all before.
 */
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
          // A lost connection is reported at once: without a pause, this loop would never let it reconnect.
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
