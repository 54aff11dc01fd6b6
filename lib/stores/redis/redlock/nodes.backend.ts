import { LockUnavailableError, type NodeError } from '../../../api/errors.js';
import type { Holder, Holding, Listed, ListRequest, Taken, Waiting } from '../../../core/backend/lock-backend.js';
import type { BackendPing } from '../../../core/backend/report.js';
import { isFailed, type Failed, type ServerBackend } from '../../node/server.backend.js';
import { agreed, causesOf } from './decisions.js';

/** The combined view of the nodes on a lock. */
interface View {
  holding?: Holding;
  /** The failures of silent nodes, if an owner would have a majority with them. */
  undecidedBy?: readonly Failed[];
}

/** The queries of operators about locks that a majority of servers keeps. */
export abstract class NodesBackend {
  protected constructor(
    private readonly servers: readonly ServerBackend[],
    private readonly majority: number,
  ) {}

  probeKey(key: string): string {
    return this.servers[0]!.probeKey(key);
  }

  /** Returns the owner with a majority. A minority after a split vote does not hold the lock, unless silent nodes could complete it. */
  async inspect(key: string): Promise<Holding | undefined> {
    const view = await this.#view(key);
    if (Array.isArray(view)) throw this.#unavailable('inspected', key, view);
    if (view.undecidedBy) throw this.#unavailable('inspected', key, view.undecidedBy);
    return view.holding;
  }

  /**
   * Searches all nodes. A held lock is on a majority of nodes, and every two majorities share a node. So the search is complete if a
   * majority of nodes was searched completely. Locks on a minority, after a split vote or the loss of a node, are left out. If silent nodes
   * could complete a majority for one of them, the list counts as incomplete.
   */
  async list(request: ListRequest): Promise<Listed> {
    const scans = await Promise.all(this.servers.map((server) => server.scan(request)));
    const done = scans.flatMap((scan) => (isFailed(scan) ? [] : [scan]));
    if (done.length < this.majority) {
      throw LockUnavailableError.ofList(causesOf(scans.filter(isFailed)));
    }
    const found = [...new Set(done.flatMap(({ keys }) => keys))];
    const keys = found.slice(0, request.limit);
    const views = await Promise.all(keys.map((key) => this.#view(key)));
    const locks: Listed['locks'] = [];
    let complete = keys.length === found.length && done.filter((scan) => scan.complete).length >= this.majority;
    views.forEach((view, at) => {
      if (Array.isArray(view)) {
        const errors = causesOf(view);
        if (!errors.every(({ isOfKey }) => isOfKey)) throw LockUnavailableError.ofList(errors);
        complete = false;
      } else if (view.holding) locks.push({ key: keys[at]!, holding: view.holding });
      else if (view.undecidedBy) complete = false;
    });
    return {
      locks,
      complete,
      scanned: done.reduce((sum, scan) => sum + scan.scanned, 0),
    };
  }

  /** @returns the failures if too many nodes failed */
  async #view(key: string): Promise<View | Failed[]> {
    const views = await Promise.all(this.servers.map((server) => server.view(key)));
    const faults = views.filter(isFailed);
    if (views.length - faults.length < this.majority) return faults;
    const holdings = views.flatMap((view) => (!view || isFailed(view) ? [] : [view]));
    const owners = holdings.map(({ holders: [{ owner }] }) => owner);
    const owner = agreed(owners, this.majority);
    if (owner === undefined) {
      const mayBeHeld = agreed(owners, this.majority - faults.length) !== undefined;
      return mayBeHeld ? { undecidedBy: faults } : {};
    }
    const majority = holdings.map(({ holders: [holder] }) => holder).filter((holder) => holder.owner === owner);
    const holder: Holder = {
      owner,
      // The lock is held as long as a majority keeps it.
      remainingMs: majority.map(({ remainingMs }) => remainingMs).sort((a, b) => b - a)[this.majority - 1]!,
      // A majority knows the issued token. A late node may have voted for another one. If the votes agreed during a write-back, the values
      // have the larger token of the write-back.
      fencingToken: agreed(
        majority.map(({ fencingToken }) => fencingToken),
        this.majority,
      ),
      heldForMs: majority.find(({ heldForMs }) => heldForMs !== undefined)?.heldForMs,
      isKept: majority.filter(({ isKept }) => isKept).length >= this.majority || undefined,
      calls: Math.max(0, ...majority.map(({ calls = 0 }) => calls)) || undefined,
    };
    return { holding: { holders: [holder], waiting: merged(holdings.map(({ waiting = [] }) => waiting)) } };
  }

  async forceRelease(key: string, wanted?: string): Promise<Taken | undefined> {
    const seizures = await Promise.all(this.servers.map((server) => server.seize(key, wanted)));
    const faults = seizures.filter(isFailed);
    if (seizures.length - faults.length < this.majority) throw this.#unavailable('released by force', key, faults);
    const from = seizures.flatMap((taken) => (isFailed(taken) ? [] : (taken?.from ?? [])));
    if (from.length === 0) return undefined;
    // An owner still holds the lock if the remaining nodes are a majority.
    const keeps = (owner: string) =>
      this.servers.length - from.filter((other) => other === owner).length >= this.majority;
    return { from: [...new Set(from)].filter((owner) => !keeps(owner)) };
  }

  async ping(): Promise<BackendPing> {
    const answers = await Promise.all(this.pingEach());
    const problems = answers.filter((problem) => problem !== undefined);
    const nodes = { voting: answers.length - problems.length, of: answers.length };
    return { available: nodes.voting >= this.majority, nodes, problems };
  }

  /** Asks each server once. @returns the problem of each server that cannot grant locks */
  protected abstract pingEach(): Promise<NodeError | undefined>[];

  #unavailable(operation: string, key: string, faults: readonly Failed[]): LockUnavailableError {
    return LockUnavailableError.from(operation, key, causesOf(faults));
  }
}

/**
 * Merges the queues of all nodes. Each ticket gets its best position: nodes differ in the order of arrival, and a node that was down, or
 * voted for the ticket, has no place for it. The number of calls is the largest number that a node knows.
 */
function merged(queues: readonly (readonly Waiting[])[]): Waiting[] | undefined {
  const places = new Map<string, Waiting & { at: number }>();
  for (const queue of queues) {
    queue.forEach(({ ticket, calls }, at) => {
      const known = places.get(ticket);
      const largest = Math.max(calls ?? -1, known?.calls ?? -1);
      places.set(ticket, { ticket, calls: largest < 0 ? undefined : largest, at: Math.min(at, known?.at ?? at) });
    });
  }
  if (places.size === 0) return undefined;
  return [...places.values()].sort((a, b) => a.at - b.at).map(({ ticket, calls }) => ({ ticket, calls }));
}
