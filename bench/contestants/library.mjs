import 'reflect-metadata';
import { Cluster } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';
import { holdByUsing } from './hold-by-using.mjs';

/** The place of the built library. `BENCH_DIST` names another copy to measure. */
const dist = process.env.BENCH_DIST ? `file://${process.env.BENCH_DIST}` : new URL('../../dist', import.meta.url).href;

/** The place of its modules. */
export const modules = `${dist}/esm/`;

/** A module of the built library. */
export function library(path) {
  return import(modules + path);
}

export function open(terms) {
  return openOn(sourceOf(terms.ports, terms.isCluster), terms);
}

/** @param source the options that say where Redis is */
export async function openOn(source, { ttlMs, waitMs, fair, awaitRelease }) {
  const { openLocks } = await library('compose/open-locks.js');
  const { service } = await openLocks({ ...source, ttlMs, waitMs, ...(fair && { fair }) });
  if (source.redlock) await untilNodesVote(service);
  return {
    acquire: (key, options) =>
      awaitRelease === false
        ? holdByUsing((work) => service.withLock(key, { awaitRelease }, work))
        : service.acquire(key, options),
    acquirePermits: (key, limit) => service.acquirePermits(key, { limit }),
    acquireAll: (keys) => service.acquireAll(keys),
    release: (lock) => lock.release(),
    hold: (key, ttl) => service.acquire(key, { ttlMs: ttl }),
    turn: (key, work) =>
      service.withLock(key, {}, (lock) => work({ held: () => lock.isHeld, token: lock.fencingToken })),
    leader: (key, options) => service.leader(key, options),
    /** How much memory the service uses. */
    size: () => service.size,
    diagnose: () => service.diagnose(),
    close: () => service.onApplicationShutdown(),
  };
}

/** Several lock services of this process: for Redis, they are as many processes. */
export function openMany(terms, count) {
  return Promise.all(Array.from({ length: count }, () => open(terms)));
}

function sourceOf(ports, isCluster) {
  if (isCluster) return { redis: () => new Cluster([{ host: '127.0.0.1', port: ports[0] }]) };
  const urls = urlsOf(ports);
  return urls.length > 1 ? { redlock: urls } : { redis: urls[0] };
}

/** The addresses of servers of this machine. */
export function urlsOf(ports) {
  return ports.map((port) => `redis://127.0.0.1:${port}`);
}

/** New Redlock nodes vote only after all leases that they may have forgotten have ended. */
export async function untilNodesVote(service) {
  for (;;) {
    try {
      const lock = await service.acquire('votes');
      await lock.release();
      return;
    } catch (error) {
      if (error.code !== 'LOCK_UNAVAILABLE') throw error;
      await sleep(100);
    }
  }
}
