import type { LockInfo } from 'nest-redis-lock';
import { until } from './until.js';
import { isRefused } from './late-write.js';
import type { PauseFigures } from './pause.js';
import type { ShopInstance } from './shop-instance.js';
import type { Site } from './site.js';
import { unloadAt, type Unloading } from './unloading.js';

export interface CrashFigures {
  /** Name and process of the holder that was killed, and of the one that came after. */
  killed: string;
  successor: string;
  ttlMs: number;
  /** How much of the dead holder's lease was left at its death; 0 when the lock died with it. */
  leaseLeftMs: number;
  /** How long the successor had to wait for the lock after that. */
  replacedAfterMs: number;
  /** Whether the dead holder's write, which came after its successor's, was refused. */
  lateWriteRefused: boolean;
  boxes: number;
  boxesExpected: number;
  /** What came of a holder that was paused; not on memory, where nobody could take its place. */
  pause?: PauseFigures;
}

const TTL_MS = 2_000; // as DeliveriesService has it
const BEFORE = 10;
const LOST_DELIVERY = 5;
const NEXT_DELIVERIES = [7, 4];

/** An instance is killed while it holds a lock and its write is on the way; two calls of another want the same lock. */
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
  /** The death of the holder, or when the successor asked for the lock, whichever came later. */
  waitsSince: number;
  leaseLeftMs: number;
}

/** Another instance waits for the lock already when its holder dies. */
async function killBeforeWaiters(site: Site, holder: ShopInstance, sku: string): Promise<Succession> {
  const successor = site.instances[1]!;
  const unloading = unloadAt(successor, sku, NEXT_DELIVERIES);
  const holding = async () => (await successor.get<{ holding: LockInfo | null }>(`/locks/product:${sku}`)).holding;
  await until(async () => (await holding())?.waiters, { what: `${successor.name} waits for the lock` });
  await holder.kill();
  const waitsSince = performance.now();
  return { successor, unloading, waitsSince, leaseLeftMs: (await holding())?.remainingMs ?? 0 };
}

/** The only instance dies, and with it the memory in which the lock was; a new process takes its place. */
async function killAndRestart(site: Site, holder: ShopInstance, sku: string): Promise<Succession> {
  await holder.kill();
  const successor = await site.startInstance();
  const waitsSince = performance.now();
  return { successor, unloading: unloadAt(successor, sku, NEXT_DELIVERIES), waitsSince, leaseLeftMs: 0 };
}
