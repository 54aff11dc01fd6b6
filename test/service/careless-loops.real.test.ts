import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { DrivenProcess } from '../support/driven-process.js';
import { RedisServer } from '../support/redis-server.js';

/** A process of its own: one whose event loop stops would take the tests with it. */
class CarelessProcess extends DrivenProcess {
  static async start(options: RedisLockModuleOptions): Promise<CarelessProcess> {
    const running = CarelessProcess.launch(options);
    onTestFinished(() => running.kill());
    return running.ready();
  }

  static launched(options: RedisLockModuleOptions): Promise<CarelessProcess> {
    return CarelessProcess.launch(options).ready();
  }

  static launch(options: RedisLockModuleOptions): CarelessProcess {
    return new CarelessProcess(new URL('careless-loop.worker.mjs', import.meta.url), options);
  }

  hold(key = 'held'): Promise<void> {
    return this.ask('hold', key);
  }

  tell(duty: 'release' | 'lose' | 'closing' | 'wait', ...args: unknown[]): Promise<void> {
    return this.ask(duty, ...args);
  }

  loop(call: string, ms = 300): Promise<{ calls: number; granted: boolean; tookMs: number }> {
    return this.ask('loop', call, ms);
  }

  untilFree(ms: number): Promise<number> {
    return this.ask('untilFree', ms);
  }
}

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

/** Refusals of an outage come together, every 10 ms at most. */
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
      careless = await CarelessProcess.launched({ redis: hung.url, commandTimeoutMs: 50 });
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

  describe('while a Redlock hangs', () => {
    let nodes: RedlockNodes;
    let careless: CarelessProcess;
    beforeAll(async () => {
      nodes = await RedlockNodes.start(3);
      careless = await CarelessProcess.launched({ redlock: nodes.urls });
      nodes.pause(0, 1, 2);
    });
    afterAll(() => Promise.all([careless.kill(), nodes.stop()]));

    it.each(['acquire', 'tryAcquire'])(
      'while all nodes of a Redlock hang, and has at most 100 calls a second of %s refused',
      async (call) => {
        expectPaced(await careless.loop(call, 600));
      },
    );
  });

  it('while Redis is gone, and has its lock when it is back', async () => {
    const gone = await RedisServer.start();
    onTestFinished(() => gone.stop());
    const careless = await CarelessProcess.start({ redis: gone.url, commandTimeoutMs: 50 });
    await gone.kill();
    expectPaced(await careless.loop('acquire', 600));
    const asking = careless.loop('acquire', 60_000);
    await gone.restart();
    expect(await asking).toMatchObject({ granted: true });
  });

  describe('while its own process holds the lock', () => {
    let careless: CarelessProcess;
    beforeAll(async () => {
      careless = await CarelessProcess.launched({ redis: server.url, keyPrefix: 'its own' });
      await careless.hold();
    });
    afterAll(() => careless.kill());

    it.each(['tryAcquire', 'withLock', 'a lock of its own'])(
      'a loop that asks again at once while its own process holds the lock leaves the event loop running: %s [G54]',
      async (call) => {
        expect((await careless.loop(call)).calls).toBeGreaterThan(1);
      },
    );
  });

  it.each([{ redis: true }, { memory: true as const }])(
    'until the holder, in the same process, gives the lock back by a timer: %o',
    async (where) => {
      const options = 'memory' in where ? where : { redis: server.url, keyPrefix: 'by timer' };
      const careless = await CarelessProcess.start(options as RedisLockModuleOptions);
      await careless.hold();
      expect(await careless.untilFree(100)).toBeGreaterThan(1);
    },
  );

  describe('when it is refused for what it asked', () => {
    let careless: CarelessProcess;
    beforeAll(() => {
      careless = CarelessProcess.launch({ memory: true });
    });
    afterAll(() => careless.kill());

    it.each(['a bad key', 'bad options', 'no work', 'an aborted signal', 'isLocked'])(
      'which was %s: the loop goes on, and so does all else',
      async (call) => {
        expect((await careless.loop(call)).calls).toBeGreaterThan(1);
      },
    );
  });

  it('when as many wait as may wait', async () => {
    const careless = await CarelessProcess.start({ redis: server.url, maxWaiters: 1 });
    await careless.hold('waited for');
    await careless.tell('wait', 'waited for');
    expect((await careless.loop('more than maxWaiters')).calls).toBeGreaterThan(1);
  });

  it('when it extends a lock that is lost', async () => {
    const careless = await CarelessProcess.start({ redis: server.url, keyPrefix: 'lost' });
    await careless.hold();
    await careless.tell('lose');
    expect((await careless.loop('an extension of a lost lock')).calls).toBeGreaterThan(1);
  });

  it('when the application closes', async () => {
    const careless = await CarelessProcess.start({ redis: server.url, keyPrefix: 'closing' });
    await careless.hold();
    await careless.tell('closing');
    expectPaced(await careless.loop('acquire'));
    await careless.tell('release');
  });
});
