import { describe, expect, it } from 'vitest';
import { LocalQueue } from '../../lib/service/local-queue.js';
import { randomOf } from '../support/random.js';

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('LocalQueue', () => {
  it('gives the turn to one at a time, in the order of arrival', async () => {
    const queue = new LocalQueue();
    const order: string[] = [];
    expect(queue.tryEnter('key')).toBe(true);
    for (const name of ['first', 'second', 'third']) {
      expect(queue.tryEnter('key')).toBe(false);
      void queue.join('key').turn.then(() => order.push(name));
    }
    expect(queue.waiting('key')).toBe(3);
    for (const expected of [['first'], ['first', 'second'], ['first', 'second', 'third']]) {
      expect(queue.leave('key')).toBe(true);
      await settled();
      expect(order).toEqual(expected);
    }
    expect(queue.leave('key')).toBe(false);
    expect(queue.size).toBe(0);
  });

  it('passes over those who gave up', async () => {
    const queue = new LocalQueue();
    queue.tryEnter('key');
    const [first, second] = [queue.join('key'), queue.join('key')];
    expect(first.giveUp()).toBe(true);
    queue.leave('key');
    expect(await second.turn).toBeUndefined();
  });

  it('tells who gives up just after the turn was given to them', async () => {
    const queue = new LocalQueue();
    queue.tryEnter('key');
    const [first, second] = [queue.join('key'), queue.join('key')];
    queue.leave('key');
    expect(first.giveUp()).toBe(false);
    queue.leave('key');
    expect(await second.turn).toBeUndefined();
  });

  it('hands on what the one before found', async () => {
    const queue = new LocalQueue();
    queue.tryEnter('key');
    const { turn } = queue.join('key');
    const fault = { causes: [], attemptedAt: 1 };
    queue.leave('key', fault);
    expect(await turn).toBe(fault);
  });

  it('keeps the queues of different keys apart', async () => {
    const queue = new LocalQueue();
    queue.tryEnter('a');
    queue.tryEnter('b');
    const [a, b] = [queue.join('a'), queue.join('b')];
    let bHasTurn = false;
    void b.turn.then(() => (bHasTurn = true));
    queue.leave('a');
    await a.turn;
    await settled();
    expect(bHasTurn).toBe(false);
    expect([queue.waiting('a'), queue.waiting('b'), queue.waiting('c')]).toEqual([0, 1, 0]);
  });

  it.each([1, 2, 3, 4, 5])('never loses a turn nor gives it twice, whatever happens (seed %i)', async (seed) => {
    const random = randomOf(seed);
    const queue = new LocalQueue();
    let [inside, most, served, gaveUp] = [0, 0, 0, 0];
    const call = async () => {
      if (!queue.tryEnter('key')) {
        const { turn, giveUp } = queue.join('key');
        const patience = random() < 0.5 ? turns(1 + random() * 40) : new Promise<never>(() => {});
        if ((await Promise.race([turn.then(() => 'turn'), patience])) !== 'turn') {
          gaveUp++;
          if (!giveUp()) queue.leave('key');
          return;
        }
      }
      most = Math.max(most, ++inside);
      await turns(random() * 3);
      inside--;
      served++;
      queue.leave('key');
    };
    const calls: Promise<void>[] = [];
    for (let index = 0; index < 1_000; index++) {
      calls.push(call());
      if (random() < 0.3) await turns(random() * 5);
    }
    await Promise.all(calls);
    expect({ most, sum: served + gaveUp, left: queue.size }).toEqual({ most: 1, sum: 1_000, left: 0 });
    expect(Math.min(served, gaveUp)).toBeGreaterThan(50);
  });
});

/** Lets the microtask queue run a few times: what happens "at the same time" falls into every order. */
async function turns(count: number): Promise<undefined> {
  for (let turn = 1; turn < count; turn++) await undefined;
  return undefined;
}
