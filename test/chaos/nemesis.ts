import { setTimeout as sleep } from 'node:timers/promises';
import type { Worker } from './crew.js';
import { nowMs } from './history.js';
import type { TcpProxy } from '../support/tcp-proxy.js';
import type { Journal } from './journal.js';
import type { ChaosDatabase, ChaosNode, ChaosRedis } from './nodes.js';
import type { PlannedFault } from './schedule.js';

export interface Cast {
  nodes: ChaosNode[];
  workers: Worker[];
  /** By worker, then by node. */
  links: TcpProxy[][];
}

/** Executes the plan, and writes it down. Settles when everything is undone. */
export async function unleash(faults: readonly PlannedFault[], cast: Cast, journal: Journal): Promise<void> {
  const begin = performance.now();
  // On a busy machine a process may take longer to start than planned: the next fault waits for it.
  const last = new Map<string, Promise<void>>();
  const inTurn = async (fault: PlannedFault, before: Promise<void> | undefined) => {
    // The time of old data.
    const leadMs = fault.kind === 'restart-old' ? fault.byMs! : 0;
    await sleep(fault.atMs - leadMs - (performance.now() - begin));
    await before;
    let at = nowMs();
    const forgets = (await inflict(fault, cast, () => (at = nowMs()))) === true;
    const { kind, node, worker } = fault;
    journal.note({ type: 'fault', kind, node, worker, until: nowMs(), forgets }, at);
  };
  const inFlight = faults.map((fault) => {
    const whom = fault.kind === 'isolate' ? 'network' : `${fault.node} ${fault.worker}`;
    const done = inTurn(fault, whom === 'network' ? undefined : last.get(whom));
    last.set(whom, done);
    return done;
  });
  await Promise.all(inFlight);
}

/** How long it may take a worker until its turns pass a lock on. */
const COHORT_MS = 1_000;

/**
 * @param onBegin called if it begins later than it was called
 * @returns whether the node has certainly lost all data
 */
async function inflict(
  { kind, forMs, byMs = 0, ...whom }: PlannedFault,
  cast: Cast,
  onBegin: () => void,
): Promise<boolean | void> {
  const node = cast.nodes[whom.node ?? 0]!;
  const [redis, database] = [node as ChaosRedis, node as ChaosDatabase];
  const worker = cast.workers[whom.worker ?? 0]!;
  const link = cast.links[whom.worker ?? 0]![whom.node ?? 0]!;
  switch (kind) {
    case 'restart-empty':
      return redis.restart('empty', forMs);
    case 'restart-with-data':
      return node.restart('with-data', forMs);
    case 'restart-old':
      redis.keepSnapshot();
      await sleep(byMs);
      onBegin();
      return redis.restart('old', forMs);
    case 'swap-primary':
      return redis.swap((port) => cast.links.forEach((own) => own[whom.node ?? 0]!.retarget(port)));
    case 'flush-cohort':
      if (!(await worker.passesOn(COHORT_MS))) return;
      onBegin();
      return redis.flush();
    case 'force-release':
      return worker.forceRelease();
    case 'half-open':
      return link.closeAtServer('subscriptions');
    case 'silence':
      return link.closeAtServer();
    case 'terminate':
      return database.terminate(link.portsAtServer);
    case 'only-read':
      return database.onlyRead(forMs);
    case 'stop-node':
      return during(forMs, () => node.pause(), () => node.resume()); // prettier-ignore
    case 'flush':
      return redis.flush();
    case 'forget-scripts':
      return redis.forgetScripts();
    case 'stop-worker':
      return during(forMs, () => worker.pause(), () => worker.resume()); // prettier-ignore
    case 'kill-worker':
      await worker.kill();
      await sleep(forMs);
      return worker.start();
    case 'cut':
      return cut([link], forMs);
    case 'isolate':
      return cut(cast.links.map((own) => own[whom.node ?? 0]!), forMs); // prettier-ignore
    case 'slow-requests':
      return during(forMs, () => (link.slowRequestsMs = byMs), () => (link.slowRequestsMs = 0)); // prettier-ignore
    case 'slow-replies':
      return during(forMs, () => (link.slowRepliesMs = byMs), () => (link.slowRepliesMs = 0)); // prettier-ignore
  }
}

/** Breaks the connections; new ones break at once. */
async function cut(links: readonly TcpProxy[], forMs: number): Promise<void> {
  for (const link of links) {
    link.breaking++;
    link.cut();
  }
  await sleep(forMs);
  for (const link of links) link.breaking--;
}

async function during(forMs: number, begin: () => unknown, end: () => unknown): Promise<void> {
  await begin();
  await sleep(forMs);
  await end();
}
