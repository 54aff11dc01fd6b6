import { isRefused } from './late-write.js';
import type { Site } from './site.js';
import { unloadAt } from './unloading.js';
import { until } from './until.js';

export interface PauseFigures {
  /** Name and pid of the paused holder, and of its successor. */
  paused: string;
  successor: string;
  /** Whether the warehouse refused the paused holder's write, which came after its successor's. */
  lateWriteRefused: boolean;
  /** The status that the paused holder answered to its own caller after it resumed: 503, because its lock was lost. */
  answeredStatus: number;
  /** What the paused holder logged after it resumed. */
  logged: string;
  boxes: number;
  boxesExpected: number;
}

const BEFORE = 10;
const LATE_DELIVERY = 5;
const NEXT_DELIVERY = 7;

/** Pauses an instance (SIGSTOP) for longer than its lease while it holds a lock and its write is on the way. */
export async function pause(site: Site, sku: string): Promise<PauseFigures> {
  const { network, shelves } = site.warehouse;
  await shelves.fill(sku, BEFORE);
  const [holder, successor] = [site.instances.at(-1)!, site.instances.at(-2)!];
  const write = network.holdUpNext(`PUT /products/${sku}`);
  const answer = holder.post('/deliveries', { sku, boxes: LATE_DELIVERY });
  answer.catch(() => {}); // the error is reported where the promise is awaited
  await write.arrived;
  holder.pause();
  await Promise.all(unloadAt(successor, sku, [NEXT_DELIVERY]));
  const lateWriteRefused = await isRefused(site, sku, write);
  holder.resume();
  const { status: answeredStatus } = await answer;
  await until(async () => holder.loggedLoss, { what: 'the paused holder logs its loss' });
  return {
    paused: `${holder.name} (pid ${holder.pid})`,
    successor: `${successor.name} (pid ${successor.pid})`,
    lateWriteRefused,
    answeredStatus,
    logged: holder.loggedLoss!,
    boxes: await shelves.read(sku),
    boxesExpected: BEFORE + NEXT_DELIVERY,
  };
}
