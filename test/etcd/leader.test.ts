import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import type { Lock, LockService } from 'nest-redis-lock';
import { fromPromises } from 'nest-redis-lock/testing';
import { EtcdLocks } from '../../examples/etcd/src/etcd-locks.js';
import { serviceOn } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { EtcdCluster } from './etcd-cluster.js';

/** How often the leader is killed and paused in turn. For ten minutes: `LEADERS=30 npm run test:servers -- etcd`. */
const LEADERS = Number(process.env.LEADERS ?? 2);
/** How long a leader is away, and the time between two of them, in a long run; a short one goes on at once. */
const [AWAY_MS, EVERY_MS] = LEADERS > 2 ? [6_000, 20_000] : [0, 0];
const TIMEOUT_MS = 5_000;

/** Their calls are short. The calls of one more process, `long`, extend their locks. */
const SHORT = ['a', 'b', 'c', 'd'];
const KEYS = [...SHORT, 'long'];

it(
  'three members whose leader is killed or paused never have two holders of a lock, and tokens stay in order [G1118]',
  async () => {
    const etcd = await EtcdCluster.start(3);
    onTestFinished(() => etcd.stop());
    const services = ['one', 'other'].map(() => {
      const store = new EtcdLocks({ endpoints: etcd.endpoints, timeoutMs: TIMEOUT_MS });
      const backend = fromPromises(store, undefined, TIMEOUT_MS);
      return serviceOn(backend, { ttlMs: 6_000, waitMs: 60_000, maxWaiters: 1_000 });
    });
    const inside = new Map<string, Lock>();
    const lastTokens = new Map<string, number>();
    const wrong: string[] = [];
    const refused: string[] = [];
    /** The last grant of each key, the number of grants, and the longest time without one. */
    const seen = new Map(KEYS.map((key) => [key, { at: performance.now(), grants: 0 }]));
    let [lastGrantAt, longestGapMs, lost] = [performance.now(), 0, 0];

    const note = (key: string, lock: Lock) => {
      const now = performance.now();
      longestGapMs = Math.max(longestGapMs, now - lastGrantAt);
      lastGrantAt = now;
      seen.get(key)!.grants++;
      if (inside.get(key)?.isHeld) wrong.push(`${key} has two holders`);
      if (lock.fencingToken! <= (lastTokens.get(key) ?? 0)) wrong.push(`${key} has a token out of order`);
      lastTokens.set(key, lock.fencingToken!);
      inside.set(key, lock);
    };
    let isOver = false;
    const caller = async (service: LockService, key: string) => {
      while (!isOver) {
        try {
          const lock = await service.acquire(key);
          note(key, lock);
          await sleep(key === 'long' ? 5_000 : 5 + Math.random() * 15);
          if (!lock.isHeld) lost++;
          if (inside.get(key) === lock) inside.delete(key);
          await lock.release().catch(() => {});
        } catch (error) {
          refused.push((error as Error).message);
          await sleep(50);
        }
      }
    };
    const callers = services.flatMap((service) => [...SHORT, ...SHORT, 'long'].map((key) => caller(service, key)));

    const grantsGoOn = async () => {
      const before = new Map([...seen].map(([key, { grants }]) => [key, grants]));
      const isGranted = ([key, { grants }]: [string, { grants: number }]) =>
        key === 'long' || grants > before.get(key)! + 3;
      await until(() => [...seen].every(isGranted), { what: 'grants of each key go on' });
    };
    await grantsGoOn();
    for (let round = 0; round < LEADERS; round++) {
      const isKilled = round % 2 === 0;
      const leader = await etcd.leader();
      const beganAt = performance.now();
      longestGapMs = 0;
      if (isKilled) await etcd.kill(leader);
      else etcd.pause(leader);
      await etcd.leader(leader);
      const electedMs = Math.round(performance.now() - beganAt);
      await grantsGoOn();
      await sleep(AWAY_MS);
      if (isKilled) await etcd.restart(leader);
      else etcd.resume(leader);
      await grantsGoOn();
      await sleep(Math.max(0, EVERY_MS - (performance.now() - beganAt)));
      const told = `a new one after ${electedMs} ms, no grant for ${Math.round(longestGapMs)} ms`;
      console.log(`The leader was ${isKilled ? 'killed' : 'paused'}: ${told}.`);
    }
    isOver = true;
    await Promise.all(callers);
    const grants = [...seen].map(([key, { grants }]) => `${key}: ${grants}`).join(', ');
    console.log(`Grants: ${grants}. Lost: ${lost}. Refused: ${refused.length} ${[...new Set(refused)].join('; ')}`);
    expect(wrong).toEqual([]);
  },
  60_000 + LEADERS * 60_000,
);
