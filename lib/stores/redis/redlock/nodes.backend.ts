import { LockUnavailableError, type NodeError } from '../../../api/errors.js';
import type { Holder, Holding, Listed, ListRequest, Taken, Waiting } from '../../../core/backend/lock-backend.js';
import type { BackendPing } from '../../../core/backend/report.js';
import { isFailed, type Failed, type ServerBackend } from '../../node/server.backend.js';
import { agreed, causesOf } from './decisions.js';

/** What the nodes together say of a lock. */
interface View {
  holding?: Holding;
  /** Of the nodes that did not answer, if an owner who has no majority of the answers would have one with them. */
  undecidedBy?: readonly Failed[];
}

/** What operators ask of locks that a majority of servers keeps. */
export abstract class NodesBackend {
  protected constructor(
    private readonly servers: readonly ServerBackend[],
    private readonly majority: number,
  ) {}

  probeKey(key: string): string {
    return this.servers[0]!.probeKey(key);
  }

  /** The holder is the owner that has a majority: minorities of a split vote are no lock, unless silent nodes may add to them. */
  async inspect(key: string): Promise<Holding | undefined> {
    const view = await this.#view(key);
    if (Array.isArray(view)) throw this.#unavailable('inspected', key, view);
    if (view.undecidedBy) throw this.#unavailable('inspected', key, view.undecidedBy);
    return view.holding;
  }

  /**
   * Searches all nodes. A lock that is held stands on a majority of them, and so on one of any other majority: the search is
   * complete when that of a majority is. What stands on a minority only, by a split vote or a node that was lost, is left out;
   * if the nodes that did not answer could make it a majority, the list is not complete.
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

  /** @returns the faults, if too many nodes failed */
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
      // It is held for as long as a majority keeps it.
      remainingMs: majority.map(({ remainingMs }) => remainingMs).sort((a, b) => b - a)[this.majority - 1]!,
      // A majority knows the token that was issued; a node that granted late may have voted for any other. Where votes came
      // to agree beside a write-back, the values have the token of that instead, which is larger.
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
    // An owner that has a majority without the nodes that it was taken from still holds it.
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

  /** Asks each server once. @returns the problems of those that cannot be asked for locks */
  protected abstract pingEach(): Promise<NodeError | undefined>[];

  #unavailable(operation: string, key: string, faults: readonly Failed[]): LockUnavailableError {
    return LockUnavailableError.from(operation, key, causesOf(faults));
  }
}

/**
 * The places of all queues, each by the foremost of its own: nodes differ in the order of arrival, and a line has
 * no place on a node that was down, or that voted for it. Its calls are the most that a node was told.
 */
function merged(queues: readonly (readonly Waiting[])[]): Waiting[] | undefined {
  const places = new Map<string, Waiting & { at: number }>();
  for (const queue of queues) {
    queue.forEach(({ ticket, calls }, at) => {
      const known = places.get(ticket);
      const most = Math.max(calls ?? -1, known?.calls ?? -1);
      places.set(ticket, { ticket, calls: most < 0 ? undefined : most, at: Math.min(at, known?.at ?? at) });
    });
  }
  if (places.size === 0) return undefined;
  return [...places.values()].sort((a, b) => a.at - b.at).map(({ ticket, calls }) => ({ ticket, calls }));
}
