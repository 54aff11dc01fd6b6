import { isRefused } from './late-write.js';
import type { Site } from './site.js';
import { unloadAt } from './unloading.js';

export interface PauseFigures {
  /** Name and process of the holder that was paused, and of the one that took its place meanwhile. */
  paused: string;
  successor: string;
  /** Whether the paused holder's write, which came after its successor's, was refused. */
  lateWriteRefused: boolean;
  /** What the paused holder answered to its own caller when it went on: 503, its lock was lost. */
  answeredStatus: number;
  boxes: number;
  boxesExpected: number;
}

const BEFORE = 10;
const LATE_DELIVERY = 5;
const NEXT_DELIVERY = 7;

/** An instance stands still (SIGSTOP) while it holds a lock and its write is on the way, for longer than its lease. */
export async function pause(site: Site, sku: string): Promise<PauseFigures> {
  const { network, shelves } = site.warehouse;
  await shelves.fill(sku, BEFORE);
  const [holder, successor] = [site.instances.at(-1)!, site.instances.at(-2)!];
  const write = network.holdUpNext(`PUT /products/${sku}`);
  const answer = holder.post('/deliveries', { sku, boxes: LATE_DELIVERY });
  answer.catch(() => {}); // reported where it is awaited
  await write.arrived;
  holder.pause();
  await Promise.all(unloadAt(successor, sku, [NEXT_DELIVERY]));
  const lateWriteRefused = await isRefused(site, sku, write);
  holder.resume();
  return {
    paused: `${holder.name} (pid ${holder.pid})`,
    successor: `${successor.name} (pid ${successor.pid})`,
    lateWriteRefused,
    answeredStatus: (await answer).status,
    boxes: await shelves.read(sku),
    boxesExpected: BEFORE + NEXT_DELIVERY,
  };
}
