import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs, quantile, sorted } from '../cell/statistics.mjs';
import { connect } from '../contestants/clients.mjs';

const FULL = { locks: 100_000, ttlMs: 30_000 };
const QUICK = { locks: 20_000, ttlMs: 9_000 };
/** Acquired at the same time: close enough for all extensions to come due together. */
const IN_FLIGHT = 1_000;
/** One of this many locks shows how far the extensions have come. */
const EVERY = 50;

/**
 * Very many locks, acquired at the same time, so that their extensions come due together: their effect on everything
 * else.
 */
export const dueTogether = {
  title: '100 000 held locks, ttl 30 s, whose extensions come due together',
  kind: 'due-together',
  groups: ['due-together'],
  processes: 2,

  async coordinate({ workers: [holder, other], quick }) {
    await holder.run('acquire', quick ? QUICK : FULL);
    const sending = other.run('send');
    const { busy, ...figures } = await holder.run('watch');
    await other.run('stop');
    const before = [];
    const meanwhile = [];
    for (const { from, to } of await sending) {
      if (to < busy[0].from) before.push(to - from);
      else if (busy.some((look) => look.from < to && from < look.to)) meanwhile.push(to - from);
    }
    const p99Ms = quantile(sorted(meanwhile), 0.99);
    const quietP99Ms = quantile(sorted(before), 0.99);
    return { ...figures, p99Ms, quietP99Ms, p99ToQuiet: p99Ms / quietP99Ms, samples: meanwhile.length };
  },

  tasks: {
    async acquire(client, { locks, ttlMs }) {
      const { contestant } = client;
      client.held = [];
      let next = 0;
      const acquireSome = async () => {
        while (next < locks) {
          const index = next++;
          client.held[index] = await contestant.hold(`held:${index}`, ttlMs);
        }
      };
      await Promise.all(Array.from({ length: IN_FLIGHT }, acquireSome));
      globalThis.gc();
    },

    /** Checks every millisecond how far the extensions have come, and how late the check is. */
    watch({ held }) {
      const waiting = held
        .filter((_, index) => index % EVERY === 0)
        .map((lock) => ({ lock, endsAt: nowMs() + lock.remainingMs + 1 }));
      const isExtended = ({ lock, endsAt }) => nowMs() + lock.remainingMs > endsAt;
      const looks = [];
      let done = 0;
      let from = nowMs();
      return new Promise((resolve) => {
        const timer = setInterval(() => {
          const to = nowMs();
          const doneBefore = done;
          while (done < waiting.length && isExtended(waiting[done])) done++;
          looks.push({ from, to, hasExtended: done > doneBefore });
          from = to;
          if (done < waiting.length) return;
          clearInterval(timer);
          // Answers of one turn of the event loop belong to commands that were sent before that turn.
          const busy = looks.filter(({ hasExtended }, index) => hasExtended || looks[index + 1]?.hasExtended);
          const quiet = looks.slice(1, looks.indexOf(busy[0]));
          resolve({
            busy,
            ms: busy.reduce((total, look) => total + look.to - look.from, 0),
            holdMs: longest(busy),
            quietHoldMs: longest(quiet),
            violations: held.filter(({ isHeld }) => !isHeld).length,
          });
        }, 1);
      });
    },

    /** Another client of the same server: one command every millisecond. */
    async send(client) {
      const redis = await connect(client.terms.ports[0]);
      const commands = [];
      while (!client.isStopped) {
        const from = nowMs();
        await redis.get('other');
        commands.push({ from, to: nowMs() });
        await sleep(1);
      }
      return commands;
    },

    async stop(client) {
      client.isStopped = true;
    },
  },
};

/** The largest delay of a timer of one millisecond. */
function longest(looks) {
  return Math.max(...looks.map(({ from, to }) => to - from - 1));
}
