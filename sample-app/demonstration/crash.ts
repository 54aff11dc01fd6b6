import type { LockInfo } from 'nest-redis-lock';
import { until } from './until.js';
import { isRefused } from './late-write.js';
import type { PauseFigures } from './pause.js';
import type { ShopInstance } from './shop-instance.js';
import type { Site } from './site.js';
import { unloadAt, type Unloading } from './unloading.js';

export interface CrashFigures {
  /** Name and pid of the killed holder, and of its successor. */
  killed: string;
  successor: string;
  ttlMs: number;
  /** How much of the killed holder's lease was left at its death; 0 if the lock was lost with it. */
  leaseLeftMs: number;
  /** How long the successor had to wait for the lock after that. */
  replacedAfterMs: number;
  /** Whether the warehouse refused the killed holder's write, which came after its successor's. */
  lateWriteRefused: boolean;
  boxes: number;
  boxesExpected: number;
  /** The figures of a paused holder. Undefined with locks in memory, where no other instance could take its place. */
  pause?: PauseFigures;
}

const TTL_MS = 2_000; // the same as in DeliveriesService
const BEFORE = 10;
const LOST_DELIVERY = 5;
const NEXT_DELIVERIES = [7, 4];

/** Kills an instance while it holds a lock and its write is on the way. Two calls of another instance want the same lock. */
export async function crash(site: Site, sku: string): Promise<CrashFigures> {
  const { network, shelves } = site.warehouse;
  await shelves.fill(sku, BEFORE);
  const holder = site.instances[0]!;
  const write = network.holdUpNext(`PUT /products/${sku}`);
  const cutOff = holder.post('/deliveries', { sku, boxes: LOST_DELIVERY }).catch((error: unknown) => error);
  await write.arrived;

  const { successor, unloading, waitsSince, leaseLeftMs } = await (site.backing.kind !== 'memory'
    ? killBeforeWaiters(site, holder, sku)
    : killAndRestart(site, holder, sku));
  await Promise.race(unloading);
  const replacedAfterMs = performance.now() - waitsSince;
  await Promise.all(unloading);
  await cutOff;

  const lateWriteRefused = await isRefused(site, sku, write);
  return {
    killed: `${holder.name} (pid ${holder.pid})`,
    successor: `${successor.name} (pid ${successor.pid})`,
    ttlMs: TTL_MS,
    leaseLeftMs,
    replacedAfterMs: Math.round(replacedAfterMs),
    lateWriteRefused,
    boxes: await shelves.read(sku),
    boxesExpected: NEXT_DELIVERIES.reduce((boxes, more) => boxes + more, BEFORE),
  };
}

interface Succession {
  successor: ShopInstance;
  unloading: Unloading[];
  /** When the holder died, or when the successor requested the lock, whichever came later. */
  waitsSince: number;
  leaseLeftMs: number;
}

/** Kills the holder while another instance is already waiting for the lock. */
async function killBeforeWaiters(site: Site, holder: ShopInstance, sku: string): Promise<Succession> {
  const successor = site.instances[1]!;
  const unloading = unloadAt(successor, sku, NEXT_DELIVERIES);
  const holding = async () => (await successor.get<{ holding: LockInfo | null }>(`/locks/product:${sku}`)).holding;
  await until(async () => (await holding())?.waiters, { what: `${successor.name} waits for the lock` });
  await holder.kill();
  const waitsSince = performance.now();
  return { successor, unloading, waitsSince, leaseLeftMs: (await holding())?.remainingMs ?? 0 };
}

/** Kills the only instance, whose memory had the lock, and starts a new process in its place. */
async function killAndRestart(site: Site, holder: ShopInstance, sku: string): Promise<Succession> {
  await holder.kill();
  const successor = await site.startInstance();
  const waitsSince = performance.now();
  return { successor, unloading: unloadAt(successor, sku, NEXT_DELIVERIES), waitsSince, leaseLeftMs: 0 };
}
