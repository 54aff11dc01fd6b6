import type { LockDiagnosis, LockPing } from '../../api/diagnosis.js';
import { digestOf, parseOwner } from '../../api/holder.js';
import type { HolderInfo, LockInfo, LockList, WaitingProcess } from '../../api/lock.js';
import type { ListOptions, ScopeOptions } from '../../api/options.js';
import { keptUntil, type Holder, type Holding, type LockBackend, type Waiting } from '../backend/lock-backend.js';
import { diagnosisOf, REPORT_TIMEOUT_MS } from '../backend/report.js';
import type { LockEngine } from '../locks/lock-engine.js';
import { splitScope } from '../keys/scope.js';
import { refuseUnknown, invalidOption } from '../options/checks.js';
import { checkOption, checkOptions, withDefaults } from '../options/option-rows.js';
import type { Shutdown } from './shutdown.js';

/** The methods of `LockService` for operators. */
export class LockAdmin {
  constructor(
    private readonly registration: string,
    private readonly backend: LockBackend,
    private readonly engine: LockEngine,
    private readonly shutdown: Shutdown,
    /** The key as the store has it. @throws LockKeyError */
    private readonly keyOf: (key: string, scope: string | null | undefined) => string,
  ) {}

  inspect(given: string, options: ScopeOptions): Promise<LockInfo | null> {
    return this.#answer(async () => {
      const key = this.#keyOf(given, options, []);
      const holding = await this.backend.inspect(key);
      return holding ? this.#infoOf(key, holding) : null;
    });
  }

  list(options: ListOptions): Promise<LockList> {
    return this.#answer(async () => {
      checkOptions('list', options);
      const { locks, complete, scanned } = await this.backend.list(withDefaults('list', options));
      const infos = locks.map(({ key, holding }) => this.#infoOf(key, holding));
      return { locks: infos.sort((a, b) => (a.key < b.key ? -1 : 1)), complete, scanned };
    });
  }

  forceRelease(given: string, options: ScopeOptions & { owner?: string }): Promise<boolean> {
    return this.#answer(async () => {
      const key = this.#keyOf(given, options, ['owner']);
      if (!('owner' in options)) return this.engine.forceRelease(key);
      const { owner } = options;
      // Without a digest it would take the lock from any holder. An owner value, like `LockHolder.owner`, is not a digest.
      if (typeof owner !== 'string' || parseOwner(owner).pid !== undefined)
        throw invalidOption('owner', owner, 'the digest that inspect has shown');
      return this.engine.forceRelease(key, owner);
    });
  }

  async diagnose(): Promise<LockDiagnosis> {
    return diagnosisOf(this.registration, await this.backend.report(REPORT_TIMEOUT_MS));
  }

  async ping(): Promise<LockPing> {
    const { available, nodes, problems } = await this.backend.ping();
    const closing = this.shutdown.newcomers.phase !== 'open'; // it may have begun meanwhile
    return { registration: this.registration, available: available && !closing, closing, nodes, problems };
  }

  /** @throws LockKeyError; LockOptionsError for an unknown option */
  #keyOf(key: string, options: ScopeOptions, others: string[]): string {
    refuseUnknown(options, ['scope', ...others]);
    if (options.scope !== undefined) checkOption('withLock', 'scope', options.scope);
    return this.keyOf(key, options.scope);
  }

  /** Rejects with an error only after the event loop has run. */
  async #answer<T>(question: () => Promise<T>): Promise<T> {
    try {
      return await question();
    } catch (error) {
      return this.engine.refuse(error);
    }
  }

  /** The waiting places to report if the store shows none for a lock; undefined if the store never shows places. */
  get #noPlaces(): [] | undefined {
    const { waitQueue } = this.backend;
    return waitQueue && waitQueue.keepsPlaces !== false ? [] : undefined;
  }

  #infoOf(key: string, holding: Holding): LockInfo {
    const { mode = 'exclusive', holders: found, waiting = this.#noPlaces } = holding;
    const places = new Set(waiting?.map(({ ticket }) => processIn(ticket)));
    const holders = found.map((each) => {
      const isCounted = mode !== 'exclusive' || places.has(processIn(each.owner)); // its process has a place, which counts them
      return { ...holderInfoOf(each), waiters: isCounted ? undefined : this.#behind(key, each) };
    });
    const { holder, digest, since, remainingMs } = holders[0]!;
    return {
      key,
      scope: splitScope(key).scope,
      mode,
      holders,
      permits: mode === 'permits' ? permitsOf(found) : undefined,
      holder,
      digest,
      since,
      remainingMs,
      keptUntil: keptUntil(found[0]),
      fencingToken: found[0].fencingToken,
      waiters: this.engine.waiting(key),
      waitingProcesses: waiting && processesOf(waiting),
    };
  }

  /** How many calls of the holder's process wait for its lock. For its own locks this process knows the number. */
  #behind(key: string, { owner, calls }: Holder): number | undefined {
    const isOwn = this.engine.leasesOf(key).some(({ grant }) => grant.owner === owner);
    return isOwn ? this.engine.waiting(key) : calls;
  }
}

function holderInfoOf({ owner, heldForMs, remainingMs, permits }: Holder): HolderInfo {
  return {
    holder: parseOwner(owner),
    digest: digestOf(owner),
    since: heldForMs === undefined ? undefined : new Date(Date.now() - heldForMs),
    remainingMs: Math.round(remainingMs),
    permits,
  };
}

function permitsOf(holders: readonly Holder[]): { held: number; limit: number } {
  return {
    held: holders.reduce((sum, { permits = 0 }) => sum + permits, 0),
    limit: Math.min(...holders.map(({ limit = Infinity }) => limit)),
  };
}

/** The name of the process in an owner value, or in a ticket. */
function processIn(owner: string): string {
  return owner.slice(0, owner.lastIndexOf('/'));
}

/** Each process once: it may have several places, for several modes or on several servers. */
function processesOf(places: readonly Waiting[]): WaitingProcess[] {
  const processes = new Map<string, WaitingProcess>();
  for (const { ticket, calls } of places) {
    const process = processIn(ticket);
    if (!processes.has(process)) processes.set(process, { ...parseOwner(ticket), waiters: calls });
  }
  return [...processes.values()];
}
