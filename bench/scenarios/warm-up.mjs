import { nowMs } from '../cell/statistics.mjs';

/** Turns of some waiters that want one lock, so that code is compiled and connections are open, as in a process that has run for a while. */
export async function turnsForAWhile(contestant, { key, waiters, ms }) {
  const end = nowMs() + ms;
  const loop = async () => {
    while (nowMs() < end) await contestant.release(await contestant.acquire(key));
  };
  await Promise.all(Array.from({ length: waiters }, loop));
}
