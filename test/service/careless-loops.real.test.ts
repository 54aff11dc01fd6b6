import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { DrivenProcess } from '../support/driven-process.js';
import { RedisServer } from '../support/redis-server.js';
import { serverOfFile } from '../support/stage.js';

/** A separate process: if its event loop stopped in this one, the tests would stop, too. */
class CarelessProcess extends DrivenProcess {
  static start(options: RedisLockModuleOptions): Promise<CarelessProcess> {
    return new CarelessProcess(new URL('careless-loop.worker.mjs', import.meta.url), options).ready();
  }

  hold(): Promise<void> {
    return this.ask('hold');
  }

  loop(call: string, ms = 60): Promise<{ calls: number; granted: boolean; tookMs: number }> {
    return this.ask('loop', call, ms);
  }
}

const server = await serverOfFile();

/** Refusals of an outage come together, at most every 10 ms. */
function expectPaced({ calls, tookMs }: { calls: number; tookMs: number }): void {
  expect(calls).toBeGreaterThan(1);
  expect(calls).toBeLessThanOrEqual(tookMs / 10 + 3);
}

describe('a loop that asks again at once leaves the event loop running', () => {
  describe('while Redis hangs', () => {
    let hung: RedisServer;
    let careless: CarelessProcess;
    beforeAll(async () => {
      hung = await RedisServer.start();
      careless = await CarelessProcess.start({ redis: hung.url, commandTimeoutMs: 50 });
      hung.pause();
    });
    afterAll(() => Promise.all([careless.kill(), hung.stop()]));

    it.each(['acquire', 'acquire with a short waitMs', 'tryAcquire', 'inspect', 'forceRelease'])(
      'a loop that asks again at once while Redis hangs leaves the event loop running, and has at most 100 calls a second of %s refused [G53]',
      async (call) => {
        expectPaced(await careless.loop(call, 600));
      },
    );
  });

  describe('while its own process holds the lock', () => {
    let careless: CarelessProcess;
    beforeAll(async () => {
      careless = await CarelessProcess.start({ redis: server.url, keyPrefix: 'its own' });
      await careless.hold();
    });
    afterAll(() => careless.kill());

    const REFUSED = ['a bad key', 'bad options', 'no work', 'an aborted signal', 'isLocked'];
    it.each(['tryAcquire', 'withLock', 'a lock of its own', ...REFUSED])(
      'a loop that asks again at once while its own process holds the lock leaves the event loop running: %s [G54]',
      async (call) => {
        expect((await careless.loop(call)).calls).toBeGreaterThan(1);
      },
    );
  });
});
