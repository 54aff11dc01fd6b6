import { NodeError } from '../errors.js';
import { ACQUIRE, FENCE_TTL_MS } from '../scripts/acquire.script.js';
import { EXTEND } from '../scripts/extend.script.js';
import { FORCE_RELEASE } from '../scripts/force-release.script.js';
import { INSPECT } from '../scripts/inspect.script.js';
import { RAISE_FENCE } from '../scripts/raise-fence.script.js';
import { RELEASE } from '../scripts/release.script.js';
import type { Script } from '../scripts/script.js';
import { ScriptFault, ScriptRunner, type Reply } from '../scripts/script-runner.js';
import { UnderWay } from '../under-way.js';
import type { Claim, Holding } from './lock-backend.js';
import type { RedisConnection } from './redis-connection.js';

/** A fault of one node. */
export interface Fault {
  status: 'fault';
  error: NodeError;
  /** The command may have taken, or may yet take, effect. */
  mayHaveRun: boolean;
  /** The connection failed, not the command. */
  disconnected: boolean;
}

export type Vote =
  { status: 'granted'; fencingToken: number } | { status: 'refused'; owner: string; remainingMs: number } | Fault;

export type NodeExtension = { status: 'extended' | 'restored' | 'absent' | 'foreign' } | Fault;
export type NodeRelease = { status: 'released' | 'gone' } | Fault;

const RETRY_RELEASE_MS = 100;

/** The operations on locks of one Redis server (or Cluster). None of them rejects, except with a bug. */
export class RedisNode {
  readonly #runner: ScriptRunner;
  readonly #keyPrefix: string;
  /** Releases that were not confirmed. Only what was sent can be here, so a server that is down adds nothing. */
  readonly #unconfirmed = new Set<Claim>();
  readonly #releasing = new UnderWay();
  #retry?: NodeJS.Timeout;
  #closed = false;

  constructor(
    readonly connection: RedisConnection,
    settings: { keyPrefix: string; commandTimeoutMs: number },
  ) {
    this.#runner = new ScriptRunner(connection.client, settings.commandTimeoutMs);
    this.#keyPrefix = settings.keyPrefix;
  }

  get name(): string {
    return this.connection.name;
  }

  acquire({ key, owner, ttlMs }: Claim): Promise<Vote> {
    return this.#run(ACQUIRE, this.#lockAndFence(key), [owner, ttlMs], (reply) =>
      Array.isArray(reply)
        ? { status: 'refused', remainingMs: remainingMs(reply[0]), owner: String(reply[1]) }
        : { status: 'granted', fencingToken: Number(reply) },
    );
  }

  /** With `restore` a lock that is absent is put back. */
  extend({ key, owner, ttlMs }: Claim, mode: 'keep' | 'restore'): Promise<NodeExtension> {
    return this.#run(EXTEND, [this.#lock(key)], [owner, ttlMs, mode], (reply) => {
      const status = ({ 1: 'extended', 2: 'restored', 0: 'absent' } as const)[Number(reply)] ?? 'foreign';
      return { status };
    });
  }

  /** A release that is not confirmed is repeated in the background until it is. */
  async release(claim: Claim): Promise<NodeRelease> {
    this.#releasing.begin();
    const release = await this.#releaseOnce(claim);
    this.#releasing.end();
    if (release.status === 'fault') this.#repeat(claim);
    return release;
  }

  /** @returns whether the counter is at or above the token and the lock still this owner's; or a fault */
  raiseFence({ key, owner }: Claim, fencingToken: number): Promise<{ status: 'raised' | 'gone' } | Fault> {
    return this.#run(RAISE_FENCE, this.#lockAndFence(key), [owner, fencingToken], (reply) => ({
      status: Number(reply) === 1 ? 'raised' : 'gone',
    }));
  }

  inspect(key: string): Promise<{ status: 'seen'; holding?: Holding } | Fault> {
    return this.#run(INSPECT, this.#lockAndFence(key), [], (reply) => ({ status: 'seen', holding: holdingOf(reply) }));
  }

  forceRelease(key: string): Promise<{ status: 'released' | 'gone' } | Fault> {
    return this.#run(FORCE_RELEASE, [this.#lock(key)], [], (reply) => ({
      status: Number(reply) === 1 ? 'released' : 'gone',
    }));
  }

  /** Waits for releases under way, tries once more what is still to be released, then closes the connection. */
  async close(): Promise<void> {
    await this.#releasing.settled();
    this.#closed = true;
    clearTimeout(this.#retry);
    const left = [...this.#unconfirmed];
    this.#unconfirmed.clear();
    await Promise.all(left.map((claim) => this.#releaseOnce(claim)));
    this.connection.close();
  }

  async #run<T>(
    script: Script,
    keys: string[],
    args: (string | number)[],
    read: (reply: Reply) => T,
  ): Promise<T | Fault> {
    try {
      return read(await this.#runner.run(script, keys, args));
    } catch (error) {
      if (!(error instanceof ScriptFault)) throw error;
      const { mayHaveRun, disconnected } = error;
      return { status: 'fault', error: new NodeError(this.name, error.message), mayHaveRun, disconnected };
    }
  }

  #releaseOnce({ key, owner }: Claim): Promise<NodeRelease> {
    return this.#run(RELEASE, [this.#lock(key)], [owner], (reply) => ({
      status: Number(reply) === 1 ? 'released' : 'gone',
    }));
  }

  #repeat(claim: Claim): void {
    if (this.#closed) return;
    this.#unconfirmed.add(claim);
    this.#retry ??= setTimeout(() => void this.#repeatAll(), RETRY_RELEASE_MS).unref();
  }

  async #repeatAll(): Promise<void> {
    const claims = [...this.#unconfirmed];
    await Promise.all(
      claims.map(async (claim) => {
        if ((await this.#releaseOnce(claim)).status !== 'fault') this.#unconfirmed.delete(claim);
      }),
    );
    this.#retry = undefined;
    if (this.#unconfirmed.size > 0 && !this.#closed)
      this.#retry = setTimeout(() => void this.#repeatAll(), RETRY_RELEASE_MS).unref();
  }

  #lock(key: string): string {
    return `${this.#keyPrefix}:{${key}}`;
  }

  #lockAndFence(key: string): string[] {
    const lock = this.#lock(key);
    return [lock, `${lock}:fence`];
  }
}

function holdingOf(reply: Reply): Holding | undefined {
  if (!Array.isArray(reply)) return undefined;
  const [remaining, owner, fence, fenceTtl] = reply;
  return {
    owner: String(owner),
    remainingMs: remainingMs(remaining),
    fencingToken: fence === '' ? undefined : Number(fence),
    heldForMs: Number(fenceTtl) > 0 ? FENCE_TTL_MS - Number(fenceTtl) : undefined,
  };
}

/** A key without a ttl, which another program must have written, never ends. */
function remainingMs(pttl: number | string | undefined): number {
  return Number(pttl) < 0 ? Infinity : Number(pttl);
}
