import { NodeError } from '../errors.js';
import { ACQUIRE, VOTE } from '../scripts/acquire.script.js';
import { CONTEND, VOTE_OR_QUEUE } from '../scripts/contend.script.js';
import { EXTEND } from '../scripts/extend.script.js';
import { FENCE_TTL_MS } from '../scripts/fence.js';
import { FORCE_RELEASE } from '../scripts/force-release.script.js';
import { queueEntry, type Service } from '../scripts/hand-off.js';
import { INSPECT } from '../scripts/inspect.script.js';
import { RAISE_FENCE } from '../scripts/raise-fence.script.js';
import { RELEASE } from '../scripts/release.script.js';
import type { Script } from '../scripts/script.js';
import { ScriptFault, ScriptRunner, type Reply } from '../scripts/script-runner.js';
import { WITHDRAW } from '../scripts/withdraw.script.js';
import { UnderWay } from '../under-way.js';
import { Inbox } from './inbox.js';
import type { Claim, Holding, Place, Waiting } from './lock-backend.js';
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

/** Is told of answers in the order in which the server gave them, which that of promises is not. */
export type Seen<Answer> = (answer: Answer) => void;

/** How a node serves locks. */
export interface NodeSettings {
  keyPrefix: string;
  commandTimeoutMs: number;
  /** Name of this process, which its inbox is called after. */
  processName: string;
  /** Whether it hands locks over by itself, which a node of a Redlock cannot. */
  handsOver: boolean;
  /** Whether a free lock goes to the first in its queue, whoever asks for it. */
  fair: boolean;
}

/** A lock, or the place of a ticket in its queue, to be given back. */
interface GivingBack {
  key: string;
  owner: string;
  /** The ticket's place. */
  entry?: string;
}

const RETRY_RELEASE_MS = 100;

/** The operations on locks of one Redis server (or Cluster). None of them rejects, except with a bug. */
export class RedisNode {
  readonly #runner: ScriptRunner;
  readonly #settings: NodeSettings;
  readonly #inbox: Inbox;
  /** What was not confirmed: of releases only what was sent, so a server that is down adds nothing. */
  readonly #unconfirmed = new Set<GivingBack>();
  readonly #releasing = new UnderWay();
  #wake?: (ticket?: string) => void;
  #retry?: NodeJS.Timeout;
  #closed = false;

  constructor(
    readonly connection: RedisConnection,
    settings: NodeSettings,
  ) {
    this.#settings = settings;
    this.#runner = new ScriptRunner(connection.client, settings.commandTimeoutMs);
    // The channel is one word of a queue's entry.
    const channel = `${settings.keyPrefix}:inbox:${settings.processName}`.replace(/\s/g, '_');
    this.#inbox = new Inbox(connection.client, channel, {
      onMessage: (ticket) => this.#wake?.(ticket),
      onChange: () => this.#wake?.(),
    });
  }

  get name(): string {
    return this.connection.name;
  }

  /** Whether somebody who waits hears of it when its turn comes. */
  get isListening(): boolean {
    return this.#inbox.isOpen;
  }

  listen(wake: (ticket?: string) => void): void {
    if (this.#closed) return;
    this.#wake = wake;
    this.#inbox.open();
  }

  /** Whether a place here is of use: nobody can be woken who does not listen, but a lock can be found to be granted. */
  get canQueue(): boolean {
    return this.#settings.handsOver || this.isListening;
  }

  /** With `waiting` a refused attempt gets a place in the queue. */
  acquire({ key, owner, ttlMs }: Claim, waiting?: Waiting, seen?: Seen<Vote>): Promise<Vote> {
    const { fair, handsOver } = this.#settings;
    if (!waiting && !fair) {
      return this.#run(handsOver ? ACQUIRE : VOTE, this.#lockAndFence(key), [owner, ttlMs], voteOf, seen);
    }
    const entry = waiting && this.canQueue ? this.#entry(waiting) : '';
    const args = [owner, ttlMs, waiting?.tokens ?? 1, entry, fair ? 1 : 0];
    const script = handsOver ? CONTEND : VOTE_OR_QUEUE;
    return this.#run(script, [...this.#lockAndFence(key), this.#queue(key)], args, voteOf, seen);
  }

  /** Gives up a place in the queue, with the lock if that was handed over to it. */
  async leave(key: string, place: Place): Promise<void> {
    const item = { key, owner: place.ticket, entry: this.#entry(place) };
    this.#releasing.begin();
    const left = await this.#giveBack(item);
    this.#releasing.end();
    // A wake-up that finds nobody is lost; a lock that was handed over must go on.
    if (left.status === 'fault' && this.#settings.handsOver) this.#repeat(item);
  }

  /** With `restore` a lock that is absent is put back. */
  extend({ key, owner, ttlMs }: Claim, mode: 'keep' | 'restore', seen?: Seen<NodeExtension>): Promise<NodeExtension> {
    return this.#run(EXTEND, [this.#lock(key)], [owner, ttlMs, mode], extensionOf, seen);
  }

  /** A release that is not confirmed is repeated in the background until it is. */
  release({ key, owner }: Claim, seen?: Seen<NodeRelease>): Promise<NodeRelease> {
    this.#releasing.begin();
    return this.#giveBack({ key, owner }, seen).then((release) => {
      this.#releasing.end();
      if (release.status === 'fault') this.#repeat({ key, owner });
      return release;
    });
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

  forceRelease(key: string): Promise<NodeRelease> {
    return this.#run(FORCE_RELEASE, [this.#lock(key), this.#queue(key)], [], releaseOf);
  }

  /** Waits for releases under way, tries once more what is still to be released, then closes the connection. */
  async close(): Promise<void> {
    await this.#releasing.settled();
    this.#closed = true;
    clearTimeout(this.#retry);
    const left = [...this.#unconfirmed];
    this.#unconfirmed.clear();
    await Promise.all(left.map((item) => this.#giveBack(item)));
    this.#inbox.close();
    this.connection.close();
  }

  #run<T>(
    script: Script,
    keys: string[],
    args: (string | number)[],
    read: (reply: Reply) => T | Fault,
    seen?: Seen<T | Fault>,
  ): Promise<T | Fault> {
    if (!seen) return this.#runner.ask<T | Fault>(script, keys, args, read, this.#faultOf);
    const told = (answer: T | Fault): T | Fault => {
      seen(answer);
      return answer;
    };
    return this.#runner.ask(
      script,
      keys,
      args,
      (reply) => told(read(reply)),
      (fault) => told(this.#faultOf(fault)),
    );
  }

  readonly #faultOf = ({ message, mayHaveRun, disconnected }: ScriptFault): Fault => ({
    status: 'fault',
    error: new NodeError(this.name, message),
    mayHaveRun,
    disconnected,
  });

  #giveBack({ key, owner, entry }: GivingBack, seen?: Seen<NodeRelease>): Promise<NodeRelease> {
    const keys = [this.#lock(key), this.#queue(key)];
    return entry === undefined
      ? this.#run(RELEASE, keys, [owner], releaseOf, seen)
      : this.#run(WITHDRAW, keys, [owner, entry], releaseOf);
  }

  #repeat(item: GivingBack): void {
    if (this.#closed) return;
    this.#unconfirmed.add(item);
    this.#retry ??= setTimeout(() => void this.#repeatAll(), RETRY_RELEASE_MS).unref();
  }

  async #repeatAll(): Promise<void> {
    await Promise.all(
      [...this.#unconfirmed].map(async (item) => {
        if ((await this.#giveBack(item)).status !== 'fault') this.#unconfirmed.delete(item);
      }),
    );
    this.#retry = undefined;
    if (this.#unconfirmed.size > 0 && !this.#closed)
      this.#retry = setTimeout(() => void this.#repeatAll(), RETRY_RELEASE_MS).unref();
  }

  #lock(key: string): string {
    return `${this.#settings.keyPrefix}:{${key}}`;
  }

  #queue(key: string): string {
    return `${this.#lock(key)}:queue`;
  }

  #entry({ ticket, isHeard }: Place): string {
    const granted: Service = isHeard && !this.connection.client.isCluster ? 'grant' : 'blind-grant';
    return queueEntry(this.#settings.handsOver ? granted : 'wake', this.#inbox.channel, ticket);
  }

  #lockAndFence(key: string): string[] {
    const lock = this.#lock(key);
    return [lock, `${lock}:fence`];
  }
}

function voteOf(reply: Reply): Vote {
  return Array.isArray(reply)
    ? { status: 'refused', remainingMs: remainingMs(reply[0]), owner: String(reply[1]) }
    : { status: 'granted', fencingToken: Number(reply) };
}

function extensionOf(reply: Reply): NodeExtension {
  return { status: ({ 1: 'extended', 2: 'restored', 0: 'absent' } as const)[Number(reply)] ?? 'foreign' };
}

function releaseOf(reply: Reply): NodeRelease {
  return { status: Number(reply) === 1 ? 'released' : 'gone' };
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
