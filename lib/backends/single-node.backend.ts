import { setTimeout as delay } from 'node:timers/promises';
import { LockUnavailableError, type NodeError } from '../errors.js';
import type {
  AcquireOutcome,
  Claim,
  ExtendOutcome,
  Holding,
  LockBackend,
  Place,
  ReleaseOutcome,
  Waiting,
} from './lock-backend.js';
import type { NodeRelease, RedisNode } from './redis-node.js';

/** Lets the client notice that its connection is gone before it is asked again. */
const RECONNECT_PAUSE_MS = 5;

/** Locks on one Redis server, one Sentinel-managed master, or one Cluster. */
export class SingleNodeBackend implements LockBackend {
  readonly handsOver = true;
  readonly #node: RedisNode;
  readonly #commandTimeoutMs: number;
  readonly #now: () => number;

  constructor(node: RedisNode, commandTimeoutMs: number, now: () => number) {
    this.#node = node;
    this.#commandTimeoutMs = commandTimeoutMs;
    this.#now = now;
  }

  /** At most one limit to get a connection again and one for the last command sent on it. */
  attemptTimeoutMs(): number {
    return 2 * this.#commandTimeoutMs;
  }

  /** Rides out a short break of the connection: the owner value makes it safe to send the same attempt again. */
  async acquire(claim: Claim, waiting?: Waiting): Promise<AcquireOutcome> {
    let startedAt: number | undefined;
    let undo = false;
    for (;;) {
      const sentAt = this.#now();
      startedAt ??= sentAt;
      const vote = await this.#node.acquire(claim, waiting);
      if (vote.status === 'granted') {
        const { fencingToken } = vote;
        return { status: 'acquired', fencingToken, lastToken: fencingToken + (waiting?.tokens ?? 1) - 1, sentAt };
      }
      let error: NodeError | undefined;
      if (vote.status === 'fault') {
        undo ||= vote.mayHaveRun;
        error = vote.error;
        const leftMs = this.#commandTimeoutMs - (this.#now() - startedAt);
        if (vote.disconnected && leftMs > 0) {
          await delay(Math.min(leftMs, RECONNECT_PAUSE_MS));
          error = await this.#node.connection.ready(leftMs);
          if (error === undefined) continue;
        }
      }
      // Giving back is not awaited: it is for whoever comes next, and is repeated until it is confirmed.
      if (vote.status === 'refused') {
        if (undo && !waiting) void this.#node.release(claim);
        return { status: 'contended', owner: vote.owner, remainingMs: vote.remainingMs, queued: waiting !== undefined };
      }
      if (undo) void (waiting ? this.#node.leave(claim.key, waiting) : this.#node.release(claim));
      return { status: 'unavailable', causes: [error!] };
    }
  }

  async extend(claim: Claim): Promise<ExtendOutcome> {
    const sentAt = this.#now();
    const extension = await this.#node.extend(claim, 'keep');
    switch (extension.status) {
      case 'extended':
        return { status: 'extended', sentAt };
      case 'fault':
        return { status: 'unavailable', causes: [extension.error] };
      default:
        return { status: 'lost', reason: extension.status === 'foreign' ? 'stolen' : 'expired' };
    }
  }

  release(claim: Claim): Promise<ReleaseOutcome> {
    return this.#node.release(claim).then(releaseOutcome);
  }

  leave(key: string, place: Place): void {
    void this.#node.leave(key, place);
  }

  get isListening(): boolean {
    return this.#node.isListening;
  }

  listen(wake: (ticket?: string) => void): void {
    this.#node.listen(wake);
  }

  async inspect(key: string): Promise<Holding | undefined> {
    const view = await this.#node.inspect(key);
    if (view.status === 'fault') throw LockUnavailableError.from('inspected', key, [view.error]);
    return view.holding;
  }

  async forceRelease(key: string): Promise<boolean> {
    const release = await this.#node.forceRelease(key);
    if (release.status === 'fault') throw LockUnavailableError.from('released by force', key, [release.error]);
    return release.status === 'released';
  }

  async connect(timeoutMs: number): Promise<NodeError[]> {
    const error = await this.#node.connection.ready(timeoutMs);
    if (error) throw unreachable([error], timeoutMs);
    return [];
  }

  close(): Promise<void> {
    return this.#node.close();
  }
}

function releaseOutcome(release: NodeRelease): ReleaseOutcome {
  return release.status === 'fault' ? { status: 'unavailable', causes: [release.error] } : { status: release.status };
}

export function unreachable(errors: NodeError[], timeoutMs: number): LockUnavailableError {
  const nodes = errors.map((error) => error.message).join('; ');
  return new LockUnavailableError(
    `Redis cannot be reached (waited ${timeoutMs} ms): ${nodes}. ` +
      'Start it, correct the address or the credentials, or set lazyConnect: true to start without it.',
    undefined,
    errors,
  );
}
