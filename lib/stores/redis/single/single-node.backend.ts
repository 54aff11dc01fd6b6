import { setTimeout as delay } from 'node:timers/promises';
import type { NodeDiagnosis } from '../doctor/diagnosis.js';
import { adviceFor, LockUnavailableError, NodeError } from '../../../api/errors.js';
import {
  tell,
  type AcquireOutcome,
  type Claim,
  type ExtendOutcome,
  type Holding,
  type LockBackend,
  type Place,
  type ReleaseOutcome,
  type Suspect,
  type Taken,
  type Waiting,
  type Wake,
} from '../../../core/backend/lock-backend.js';
import type { NodeExtension, NodeRelease, Vote } from '../node/node-answers.js';
import type { RedisNode } from '../node/redis-node.js';
import type { ReplicaWait } from '../replicas/replica-wait.js';

/** Lets the client notice that its connection is gone before it is asked again. */
const RECONNECT_PAUSE_MS = 5;

/** Locks on one Redis server, one Sentinel-managed master, or one Cluster. */
export class SingleNodeBackend implements LockBackend {
  readonly handsOver = true;
  readonly #node: RedisNode;
  readonly #commandTimeoutMs: number;
  readonly #now: () => number;
  /** Undefined: what the server granted counts as held. */
  readonly #replicas?: ReplicaWait;

  constructor(node: RedisNode, commandTimeoutMs: number, now: () => number, replicas?: ReplicaWait) {
    this.#node = node;
    this.#commandTimeoutMs = commandTimeoutMs;
    this.#now = now;
    this.#replicas = replicas;
  }

  /** At most one limit to get a connection again and one for the last command sent on it; then its replicas are waited for. */
  attemptTimeoutMs(): number {
    return 2 * this.#commandTimeoutMs + (this.#replicas?.timeoutMs ?? 0);
  }

  acquire(claim: Claim, waiting: Waiting | undefined, told: (outcome: AcquireOutcome) => void): void {
    const sentAt = this.#now();
    this.#node.acquire(claim, waiting, (vote) => {
      if (vote.status === 'granted' && !this.#replicas) told(acquired(vote.fencingToken, sentAt, waiting));
      else tell(this.#outcomeOf(vote, claim, sentAt, waiting), told);
    });
  }

  /** Rides out a short break of the connection: the owner value makes it safe to send the same attempt again. */
  async #outcomeOf(vote: Vote, claim: Claim, sentAt: number, waiting?: Waiting): Promise<AcquireOutcome> {
    const startedAt = sentAt;
    let undo = false;
    for (;;) {
      if (vote.status === 'granted') {
        const cause = this.#replicas && (await missing(this.#replicas, claim));
        if (!cause) return acquired(vote.fencingToken, sentAt, waiting);
        this.#undo(claim, waiting);
        return { status: 'unavailable', causes: [cause] };
      }
      if (vote.status === 'refused') {
        if (undo && !waiting) this.#undo(claim);
        const { owner, remainingMs, number } = vote;
        const refusal = { status: 'contended', owner, remainingMs, queued: waiting !== undefined, number } as const;
        return undo ? { ...refusal, isRepeated: true } : refusal;
      }
      undo ||= vote.mayHaveRun;
      const leftMs = this.#commandTimeoutMs - (this.#now() - startedAt);
      const error = vote.disconnected && leftMs > 0 ? await this.#reconnected(leftMs) : vote.error;
      if (error) {
        if (undo) this.#undo(claim, waiting);
        return { status: 'unavailable', causes: [error] };
      }
      sentAt = this.#now();
      vote = await new Promise((resolve) => this.#node.acquire(claim, waiting, resolve));
    }
  }

  async #reconnected(leftMs: number): Promise<NodeError | undefined> {
    const { connection } = this.#node;
    if (!connection.isKnownDown) await delay(Math.min(leftMs, RECONNECT_PAUSE_MS));
    return connection.ready(leftMs);
  }

  extend(claim: Claim, told: (outcome: ExtendOutcome) => void): void {
    const sentAt = this.#now();
    const extended = (extension: NodeExtension) => told(extendOutcome(extension, sentAt));
    if (this.#replicas) void this.#replicas.extend(claim).then(extended);
    else this.#node.extend(claim, 'keep', extended);
  }

  release(claim: Claim): Promise<ReleaseOutcome> {
    return new Promise((resolve) => this.#node.release(claim, (release) => resolve(releaseOutcome(release))));
  }

  leave(key: string, place: Place): void {
    this.#node.leave(key, place);
  }

  get isListening(): boolean {
    return this.#node.isListening;
  }

  listen(wake: Wake, suspect?: Suspect): void {
    this.#node.listen((ticket, fencingToken) => {
      // What replicas are to have is not held before they do, and what cannot be extended now is not begun with.
      const mayBegin = !this.#replicas && this.#node.connection.isReady;
      wake(ticket, mayBegin ? fencingToken : undefined);
    }, suspect);
  }

  checkListening(): void {
    this.#node.checkListening();
  }

  problems(silence: string): NodeError[] {
    return [this.#node.problem(silence) ?? new NodeError(this.#node.name, silence)];
  }

  async inspect(key: string): Promise<Holding | undefined> {
    const view = await this.#node.inspect(key);
    if (view.status === 'fault') throw LockUnavailableError.from('inspected', key, [view.error]);
    return view.holding;
  }

  async forceRelease(key: string): Promise<Taken | undefined> {
    const seizure = await this.#node.forceRelease(key);
    if (seizure.status === 'fault') throw LockUnavailableError.from('released by force', key, [seizure.error]);
    return seizure.status === 'taken' ? { from: [seizure.from] } : undefined;
  }

  async connect(timeoutMs: number): Promise<NodeError[]> {
    const error = await this.#node.connection.ready(timeoutMs, 'start');
    if (error) throw unreachable([error], timeoutMs);
    return [];
  }

  probe(timeoutMs: number): Promise<NodeDiagnosis[]> {
    return this.#node.probe(timeoutMs);
  }

  async close(): Promise<void> {
    await this.#node.close();
    this.#replicas?.close();
  }

  /**
   * Not awaited: it is for whoever comes next, and is repeated until it is confirmed, however long that takes: an attempt
   * that was not answered may run when the server goes on.
   */
  #undo(claim: Claim, waiting?: Waiting): void {
    if (waiting) this.#node.leave(claim.key, waiting);
    else this.#node.release(claim, undefined, Infinity);
  }
}

function acquired(fencingToken: number, sentAt: number, waiting?: Waiting): AcquireOutcome {
  return { status: 'acquired', fencingToken, lastToken: fencingToken + (waiting?.tokens ?? 1) - 1, sentAt };
}

/** Why the replicas do not have a lock that was granted; undefined when they do. */
async function missing(replicas: ReplicaWait, claim: Claim): Promise<NodeError | undefined> {
  const extension = await replicas.extend(claim);
  if (extension.status === 'extended') return undefined;
  if (extension.status === 'fault') return extension.error;
  return new NodeError('Redis', 'the lock was gone from the primary before replicas were known to have it');
}

function extendOutcome(extension: NodeExtension, sentAt: number): ExtendOutcome {
  switch (extension.status) {
    case 'extended':
      return { status: 'extended', sentAt };
    case 'fault':
      return { status: 'unavailable', causes: [extension.error] };
    default:
      return { status: 'lost', reason: extension.status === 'foreign' ? 'stolen' : 'expired' };
  }
}

function releaseOutcome(release: NodeRelease): ReleaseOutcome {
  return release.status === 'fault' ? { status: 'unavailable', causes: [release.error] } : { status: release.status };
}

export function unreachable(errors: NodeError[], timeoutMs: number): LockUnavailableError {
  const nodes = errors.map((error) => error.message).join('; ');
  const message = errors.every(({ advice }) => advice !== undefined)
    ? `Redis cannot be used: ${nodes}. ${adviceFor(errors)}`
    : `Redis cannot be reached (waited ${timeoutMs} ms): ${nodes}. ` +
      'Start it, correct the address or the credentials, or set lazyConnect: true to start without it.';
  return new LockUnavailableError(message, undefined, errors);
}
