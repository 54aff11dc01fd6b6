import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { startRedisServers, scriptCalls } from '../cell/redis-servers.mjs';
import { countWrites } from '../cell/command-counter.mjs';
import { cpuUs, sum } from '../cell/statistics.mjs';
import { open } from '../contestants/library.mjs';

const MASTERS = 3;
const FULL = { locks: 20_000, ttlMs: 12_000, rounds: 2 };
const QUICK = { locks: 4_000, ttlMs: 6_000, rounds: 2 };
const IN_FLIGHT = 1_000;
/** How often the event loop is checked, in milliseconds: rarely enough to cost little. */
const RESOLUTION_MS = 10;

/**
 * The cost of holding very many locks in a Cluster, whose commands may name only keys of one slot, compared to one
 * Redis.
 */
export const heldInCluster = {
  title: `20 000 held locks (quick: 4 000) in a Cluster of ${MASTERS}, and on one Redis`,
  kind: 'held-in-cluster',
  groups: ['growth'],
  masters: MASTERS,
  processes: 2,
  once: true,
  limitMs: 120_000,

  async coordinate({ servers, workers: [inCluster, onOne], quick }) {
    const terms = quick ? QUICK : FULL;
    const [single] = await startRedisServers(1);
    const cluster = await held(inCluster, servers, terms);
    const one = await held(onOne, [single], terms);
    return { cluster, one, clientUsToOne: cluster.clientUs / one.clientUs, violations: cluster.lost + one.lost };
  },

  tasks: {
    async acquire(client, { locks, ttlMs, ports }) {
      client.writes = countWrites(ports);
      const contestant = await open({ ...client.terms, ports, isCluster: ports.length > 1 });
      client.held = [];
      const acquireSome = async () => {
        while (client.held.length < locks) {
          const index = client.held.push(undefined) - 1;
          client.held[index] = await contestant.hold(`held:${index}`, ttlMs);
        }
      };
      await Promise.all(Array.from({ length: IN_FLIGHT }, acquireSome));
      await sleep(ttlMs / 2); // into the steady state
    },

    async keep({ writes, held: locks }, { ms }) {
      const writesBefore = writes();
      const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
      delay.enable();
      const cpuBefore = process.cpuUsage();
      await sleep(ms);
      const clientUs = cpuUs(cpuBefore);
      delay.disable();
      const lost = locks.filter(({ isHeld }) => !isHeld).length;
      return { clientUs, writes: writes() - writesBefore, holdMs: delay.max / 1e6 - RESOLUTION_MS, lost };
    },
  },
};

/** @returns the cost of one round of extensions */
async function held(worker, servers, { locks, ttlMs, rounds }) {
  await worker.run('acquire', { locks, ttlMs, ports: servers.map(({ port }) => port) });
  await Promise.all(servers.map(({ control }) => control.config('RESETSTAT')));
  const { clientUs, writes, holdMs, lost } = await worker.run('keep', { ms: (rounds * ttlMs) / 3 });
  const total = async (count) => sum(await Promise.all(servers.map(({ control }) => count(control))));
  const extensions = await total(extended);
  const perRound = locks / extensions;
  return {
    commands: (await total(scriptCalls)) * perRound,
    writesOfNode: (writes * perRound) / servers.length,
    clientUs: clientUs / extensions,
    holdMs,
    lost,
  };
}

/** The number of extensions: each is one PEXPIRE within a script. */
async function extended(control) {
  return Number(/^cmdstat_pexpire:calls=(\d+)/m.exec(await control.info('commandstats'))?.[1] ?? 0);
}
