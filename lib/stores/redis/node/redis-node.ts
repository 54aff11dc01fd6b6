import { NodeError, type LockUnavailableError } from '../../../api/errors.js';
import type { LockMode } from '../../../api/lock.js';
import {
  ACQUIRE,
  ADMIT,
  CROWD,
  DOWNGRADE,
  EXTEND,
  EXTEND_AND_TELL,
  EXTEND_CROWD,
  FORCE_RELEASE,
  INSPECT,
  KEEP,
  RAISE_FENCE,
  RELEASE,
  RESTORE,
  TRANSFER,
  TURN,
  VOTE,
  VOTE_OR_QUEUE,
  WITHDRAW,
} from '../scripts/lua.js';
import type { LockNode } from '../../node/lock-node.js';
import { crowdArgs, crowdEntry, GIVE_AND_TURN, GIVE_CROWD, queueEntry } from '../scripts/hand-off.js';
import { GRANT_TTL_MS, readMessage } from '../../node/messages.js';
import type { Script } from '../scripts/script.js';
import { ScriptFault } from '../scripts/script-fault.js';
import { ScriptRunner, type Reply } from '../scripts/script-runner.js';
import type { Sending, Wanted } from '../../../core/backend/lane.js';
import { InFlight } from '../../../core/time/in-flight.js';
import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { leftMs, monotonic } from '../../../core/time/clock.js';
import { ServerClock } from '../../../core/time/server-clock.js';
import { inTime } from '../../../core/time/time-limit.js';
import { ReleaseRetry } from '../../../core/backend/release-retry.js';
import { PING_KEY } from '../../../core/backend/report.js';
import { PlainInbox, type Inbox, type InboxListener, type Listening } from './inbox.js';
import { ShardedInbox } from './sharded-inbox.js';
import { KeyScan } from './key-scan.js';
import { countersOf, LockKeys, ownerPart, tokenText } from './lock-keys.js';
import {
  EXCLUSIVE,
  type AcquireRequest,
  type ExtendRequest,
  type Grant,
  type Hold,
  type ListRequest,
  type Place,
  type Releasing,
  type Transfer,
  type WaitListener,
  type WaitQueue,
} from '../../../core/backend/lock-backend.js';
import {
  crowdOf,
  extensionOf,
  holdingOf,
  releaseOf,
  seizureOf,
  transferOf,
  turnOf,
  voteOf,
  type Admission,
  type NodeAdmission,
} from './node-answers.js';
import { ToldHandOver, standsMs } from '../../node/grants.js';
import type {
  Fault,
  Joined,
  NodeExtension,
  NodeRelease,
  NodeScan,
  NodeSeizure,
  NodeTransfer,
  NodeView,
  Vote,
} from '../../node/answers.js';
import { nodeError, unreachable } from '../client/advice.js';
import type { RedisConnection } from '../client/redis-connection.js';
import type { ServerIdentity } from '../client/server-identity.js';

/** Advice for a call whose time was over before its attempt was sent. */
const CONGESTED =
  'If it answers others, this process asks for more locks at a time than the server can answer: raise waitMs, or ask for fewer together.';

/** How long after a refusal that passes a release is sent again, in milliseconds. */
const REFUSED_PAUSE_MS = 50;

/** What a process needs in a Cluster to hear of its turns without a message to all nodes. */
const FOR_SHARDED_MESSAGES = '+ssubscribe +sunsubscribe +spublish +pubsub|shardnumsub';

const MODES: readonly LockMode[] = ['shared', 'permits'];

/** Settings of a node. */
export interface NodeSettings {
  /** First part of every key: `<keyPrefix>:{<key>}`. */
  keyPrefix: string;
  /** How long the server may owe answers and give none, in milliseconds. */
  commandTimeoutMs: number;
  /** The name of this process, which its inbox is named after. */
  processName: string;
  /** Whether a release hands the lock over to the next in the queue. A node of a Redlock only wakes it. */
  handsOver: boolean;
  /** How many replicas must have a lock before it counts as held. */
  awaitedReplicas: number;
  /** Whether an answer counts only on the connection of its command: another one may lead to a server that has restarted. */
  needsAdmission: boolean;
  /** The clock of the service, in milliseconds: says when a command was sent. @default monotonic, which never is ahead of it */
  now?: () => number;
}

/** The release of a lock, or of a ticket's place in its queue. */
interface PendingRelease extends Releasing {
  key: string;
  owner: string;
  hold?: Hold;
  /** The ticket's place. */
  entry?: string;
}

/**
 * The lock operations of one Redis server (or Cluster). None of them rejects, except for a bug. A `done` callback is called
 * once, after the method has returned, and in the order in which the server answered.
 */
export class RedisNode implements LockNode, WaitQueue, InboxListener {
  readonly store = 'Redis';
  readonly waitQueue = this;
  readonly #runner: ScriptRunner;
  readonly #settings: NodeSettings;
  readonly #keys: LockKeys;
  readonly #scan: KeyScan;
  // Made once, as nearly every call uses them.
  readonly #voteOf = this.#reader((reply) => this.#checked(voteOf(reply, this.name)));
  readonly #turnOf = this.#reader((reply) => this.#checked(turnOf(reply, this.name)));
  readonly #crowdOf = this.#reader<Vote | Joined>((reply) => this.#checked(crowdOf(reply, this.name)));
  readonly #extensionOf = this.#reader(extensionOf);
  readonly #releaseOf = this.#reader(releaseOf);
  readonly #timeAt = (key: string, serverUs: number) => this.timeAt(key, serverUs);
  /** By the last part of their routes: the server where it is known, else the slot. */
  readonly #clocks = new Map<number | string, ServerClock>();
  #inbox: Inbox;
  /** Releases that are not confirmed. An attempt that was never sent needs none, so a server that is down adds nothing. */
  readonly #retry: ReleaseRetry<PendingRelease>;
  readonly #releasing = new InFlight();
  /** The last fault and its reading: all operations of a command share a fault, and all calls do while the server hangs. */
  #lastFault?: [ScriptFault, Fault];
  #listener?: WaitListener;
  onReachable?: () => void;
  /** Called each time that the connection was made, before anything that waited for it is sent. */
  onReady?: () => void;
  #closed = false;

  constructor(
    readonly connection: RedisConnection,
    settings: NodeSettings,
  ) {
    this.#settings = settings;
    const { commandTimeoutMs, handsOver, needsAdmission, keyPrefix, now } = settings;
    const { client } = connection;
    this.#retry = new ReleaseRetry(
      (item, done) => this.#giveBack(item, ({ status }) => done(status !== 'fault')),
      () => this.isReady,
    );
    const listener = {
      onOverdue: (isOpen: () => boolean) => connection.suspect(isOpen),
      onAnswering: () => this.#hurry(),
    };
    this.#runner = new ScriptRunner(client, commandTimeoutMs, { sameConnection: needsAdmission, listener, now });
    this.#keys = new LockKeys(keyPrefix, countersOf(handsOver, client.topology.isCluster), client.topology.keyPrefix);
    this.#scan = new KeyScan(connection, this.#keys, commandTimeoutMs);
    this.#inbox = handsOver && client.topology.isCluster ? this.#shardedInbox() : this.#plainInbox();
    connection.onReady = () => this.#becomeReady();
  }

  get name(): string {
    return this.connection.name;
  }

  /** Whether a release hands the lock over to the next in the queue. A node of a Redlock only wakes it. */
  get handsOver(): boolean {
    return this.#settings.handsOver;
  }

  get sendsLater(): boolean {
    return this.connection.client.sendsLater;
  }

  /** No node of a Redlock could keep a limit, or know all readers. */
  get modes(): readonly LockMode[] | undefined {
    return this.handsOver ? MODES : undefined;
  }

  get isReady(): boolean {
    return this.connection.isReady;
  }

  /** Whether waiters for a key hear of it when their turn comes. */
  isListening(key: string): boolean {
    return this.#inbox.isOpen(key);
  }

  /**
   * The problem of this node, as far as it is known.
   * @param silence the problem of a node that is connected, but owes an answer
   */
  problem(silence: string): NodeError | undefined {
    if (!this.isReady) return this.connection.problem;
    if (this.#runner.isAnswered) return undefined;
    return new NodeError(this.name, silence, this.#runner.isCongested ? CONGESTED : undefined);
  }

  /** Begins to listen for messages about a key, unless it does already. */
  listen(key: string, listener: WaitListener): void {
    this.#listener = listener;
    if (!this.#closed) this.#inbox.open(key);
  }

  checkListening(key: string): void {
    this.#inbox.check(key);
  }

  /**
   * Attempts to acquire a lock. With a place, a refused attempt is queued.
   * @param done its second argument says when the attempt was sent; when it failed, if it never was
   * @param givenBack the owner value of a lock of the same key that is given back in the same step
   */
  acquire(request: AcquireRequest, done: (vote: Vote | Joined, sentAt: number) => void, givenBack?: string): void {
    const { key, hold, owner, ttlMs, place, turns = 1, inOrder, asker } = request;
    const keys = this.#keys;
    if (hold.mode !== 'exclusive') {
      this.#join(request, hold, done, givenBack);
      return;
    }
    if (!place && !inOrder && turns === 1 && givenBack === undefined) {
      const args = [ttlMs, ownerPart(owner)];
      this.#runner.run(ACQUIRE, [keys.fence(key), keys.lock(key)], args, this.#voteOf, done, asker);
      return;
    }
    const names = [keys.fence(key), keys.lock(key), keys.queue(key)];
    const clock = this.#clockOf(names[1]!);
    const number = place && clock.at(place.arrivedAt);
    const args = [
      this.#inbox.signOf(key),
      givenBack === undefined ? '' : ownerPart(givenBack),
      ownerPart(owner),
      ttlMs,
      turns,
      place ? this.#entry(place) : '',
      number ?? '',
      place?.isTaken ? 1 : 0,
      place?.calls ?? 0,
    ];
    const script = givenBack === undefined ? TURN : GIVE_AND_TURN;
    this.#runner.run(script, names, args, this.#turnOf, this.#learning(clock, done), asker);
  }

  /** As `acquire`, for one who holds the lock together with others. */
  #join(
    { key, owner, ttlMs, place, others = [], asker }: AcquireRequest,
    hold: Exclude<Hold, { mode: 'exclusive' }>,
    done: (vote: Vote | Joined, sentAt: number) => void,
    givenBack?: string,
  ): void {
    const names = this.#keysToHandOver(key);
    const clock = this.#clockOf(names[1]!);
    const number = place && clock.at(place.arrivedAt);
    const args = [
      this.#inbox.signOf(key),
      givenBack ?? '',
      owner,
      ttlMs,
      ...crowdArgs(hold),
      place ? this.#entry(place) : '',
      number ?? '',
      place?.isTaken ? 1 : 0,
      place?.calls ?? 0,
      others.join(' '),
    ];
    const script = givenBack === undefined ? CROWD : GIVE_CROWD;
    this.#runner.run(script, names, args, this.#crowdOf, this.#learning(clock, done), asker);
  }

  /** @returns a callback that reads the time of the server first */
  #learning(
    clock: ServerClock,
    done: (vote: Vote | Joined, sentAt: number) => void,
  ): (vote: Vote | Joined, sentAt: number) => void {
    return (vote, sentAt) => {
      const { now = monotonic } = this.#settings;
      const receivedAt = monotonic();
      const { nodeTimeUs } = vote as { nodeTimeUs?: number };
      if (nodeTimeUs !== undefined) clock.learn(nodeTimeUs, receivedAt - (now() - sentAt), receivedAt);
      done(vote, sentAt);
    };
  }

  /** A time of the server that has the key, by the monotonic clock in milliseconds; undefined before it has told the time. */
  timeAt(key: string, serverUs: number): number | undefined {
    return this.#clockOf(this.#keys.lock(key)).monotonicAt(serverUs);
  }

  /**
   * Attempts to acquire a lock on one of the nodes of a Redlock.
   * @param admission undefined: the node votes whenever it answers
   * @param value of the lock, with the fencing token that the node is to vote for if its clock and its counter allow it
   * @param done as of `acquire`
   * @param wanted who asks
   * @returns whether it waits to be sent; undefined if it never will be
   */
  vote(
    { key, ttlMs, place }: AcquireRequest,
    admission: Admission | undefined,
    value: string,
    done: (vote: Vote, sentAt: number) => void,
    wanted?: Wanted,
  ): Sending | undefined {
    const keys = this.#keys;
    const epoch = admission?.epoch ?? '';
    if (!place) {
      const names = [keys.admission(key), keys.lock(key), keys.fence(key)];
      return this.#runner.run(VOTE, names, [epoch, ttlMs, value], this.#voteOf, done, wanted);
    }
    // A process that does not listen cannot be woken.
    const entry = this.isListening(key) ? this.#entry(place) : '';
    const names = [keys.admission(key), keys.lock(key), keys.fence(key), keys.queue(key)];
    const args = [epoch, ttlMs, value, entry, place.isTaken ? 1 : 0, place.calls];
    return this.#runner.run(VOTE_OR_QUEUE, names, args, this.#voteOf, done, wanted);
  }

  /** @param longestMs the longest ttl in use, as far as the caller knows */
  admit({ run, uptimeS }: ServerIdentity, longestMs: number): Promise<NodeAdmission> {
    return this.#run<NodeAdmission>(ADMIT, [this.#keys.admission()], [run, uptimeS, longestMs], (reply) => {
      const [epoch, ...numbers] = reply as (string | number)[];
      const [sinceMs, longest, timeUs] = numbers.map(Number) as [number, number, number];
      return { status: 'admitted', epoch: String(epoch), sinceMs, longestMs: longest, timeUs };
    });
  }

  /**
   * Gives up a place in the queue, and the lock if it was handed over to that place. Retried without end: a place has no
   * ttl of its own, and every waiter keeps the queue alive.
   */
  leave(key: string, place: Place): void {
    this.#release({ key, owner: place.ticket, entry: this.#entry(place) }, Infinity);
  }

  /** Tickets of others are left alone: anybody who may publish can send such a message. */
  decline(key: string, ticket: string): void {
    const isOwn = ticket.startsWith(`${this.#settings.processName}/`);
    if (isOwn) this.#release({ key, owner: ticket, entry: '' }, GRANT_TTL_MS);
  }

  /**
   * Extends a lock. With `restore`, a lock that is absent is put back, with the token of its grant.
   * @param done as of `acquire`
   */
  extend(
    request: ExtendRequest,
    mode: 'keep' | 'restore',
    done: (extension: NodeExtension, sentAt: number) => void,
  ): void {
    const { grant, ttlMs, waiting } = request;
    const lock = this.#keys.lock(grant.key);
    const { hold = EXCLUSIVE } = grant;
    if (hold.mode !== 'exclusive') {
      this.#runner.run(EXTEND_CROWD, [lock], [ttlMs, grant.owner], this.#extensionOf, done);
      return;
    }
    const owner = ownerPart(grant.owner);
    if (mode === 'restore') {
      const args = [ttlMs, owner, tokenText(grant.fencingToken ?? 0)];
      this.#runner.run(RESTORE, [lock], args, this.#extensionOf, done);
    } else if (waiting) {
      const args = [ttlMs, owner, waiting.calls, waiting.forMs];
      this.#runner.run(EXTEND_AND_TELL, [lock, this.#keys.calls(grant.key)], args, this.#extensionOf, done);
    } else {
      this.#runner.run(EXTEND, [lock], [ttlMs, owner], this.#extensionOf, done);
    }
  }

  /** Changes the owner of a lock. Only of a node that keeps locks alone. @param done as of `acquire` */
  transfer(
    { key, from, to, ttlMs, atLeast, mints, hold }: Transfer,
    done: (transfer: NodeTransfer, sentAt: number) => void,
  ): void {
    const read = this.#reader<NodeTransfer>((reply) => transferOf(reply, this.name));
    if (hold?.mode === 'shared') {
      this.#runner.run(DOWNGRADE, this.#keysToHandOver(key), [ownerPart(from), to, ttlMs], read, done);
      return;
    }
    const names = [this.#keys.fence(key), this.#keys.lock(key)];
    const args = [ownerPart(from), ownerPart(to), ttlMs, mints ? 1 : 0, atLeast ? 1 : 0];
    this.#runner.run(TRANSFER, names, args, read, done);
  }

  /**
   * Releases a lock, or keeps it. Retried in the background until it is confirmed, or the lock has ended by itself.
   * Replicas are not waited for when it is kept: without this command they have the lock for as long as it was extended.
   * @param forMs how long the lock may stand, in milliseconds; Infinity where an attempt that was not answered may yet run
   */
  release(
    grant: Grant,
    { keepUntil }: Releasing,
    done?: (release: NodeRelease) => void,
    forMs = standsMs(grant),
  ): void {
    this.#release({ key: grant.key, owner: grant.owner, hold: grant.hold, keepUntil }, forMs, done);
  }

  /**
   * Raises the fencing counter of a lock to a token, and makes that the token of the lock.
   * @returns `raised`: the counter is at or above the token, the lock still this owner's, and its vote was not above the token
   */
  raiseFence({ key, owner }: Grant, fencingToken: number): Promise<{ status: 'raised' | 'gone' } | Fault> {
    return this.#run<{ status: 'raised' | 'gone' }>(
      RAISE_FENCE,
      [this.#keys.lock(key), this.#keys.fence(key)],
      [ownerPart(owner), tokenText(fencingToken)],
      (reply) => ({
        status: Number(reply) === 1 ? 'raised' : 'gone',
      }),
    );
  }

  inspect(key: string): Promise<NodeView> {
    const keys = [this.#keys.lock(key), this.#keys.queue(key), this.#keys.calls(key)];
    return this.#run<Exclude<NodeView, Fault>>(INSPECT, keys, [], (reply) => ({
      status: 'seen',
      holding: holdingOf(reply),
    }));
  }

  /** Searches for locks, held or free meanwhile. Takes the budget of the request, and one time limit more, at most. */
  scan(request: ListRequest): Promise<NodeScan> {
    return this.#scan.run(request);
  }

  /**
   * Asks the server once, if it is connected: in a Cluster the master of one key, which stands for all. The time limit includes
   * the time for which the command has to wait in this process.
   * @returns the problem; undefined when it answered
   */
  async ping(): Promise<NodeError | undefined> {
    if (!this.isReady) return this.connection.problem;
    const { commandTimeoutMs } = this.#settings;
    const answer = this.inspect(PING_KEY).then((view) => (view.status === 'fault' ? view.error : undefined));
    return inTime(answer, commandTimeoutMs, () => nodeError(this.name, `no answer within ${commandTimeoutMs} ms`));
  }

  /** @param from the owner that the lock is taken from; '' for whoever holds it */
  forceRelease(key: string, from = ''): Promise<NodeSeizure> {
    return this.#run(FORCE_RELEASE, this.#keysToHandOver(key), [this.#keys.inbox(), key, from], seizureOf);
  }

  unreachable(problem: NodeError, timeoutMs: number): LockUnavailableError {
    return unreachable([problem], timeoutMs);
  }

  insist(): void {
    this.#runner.insist();
  }

  /** Waits for releases in flight, tries the unconfirmed ones once more, then closes the connection. */
  async close(): Promise<void> {
    await this.#releasing.settled();
    this.#closed = true;
    this.insist();
    await this.#retry.close();
    this.#inbox.close();
    this.connection.close();
  }

  #run<Answer>(
    script: Script,
    keys: string[],
    args: (string | number)[],
    read: (reply: Reply) => Answer | Fault,
  ): Promise<Answer | Fault> {
    return this.#runner.ask(script, keys, args, this.#reader(read));
  }

  #reader<Answer>(read: (reply: Reply) => Answer | Fault): (reply: Reply | ScriptFault) => Answer | Fault {
    return (reply) => (reply instanceof ScriptFault ? this.#faultOf(reply) : read(reply));
  }

  #faultOf(fault: ScriptFault): Fault {
    const { message, mayHaveRun, disconnected, isOfKey } = fault;
    // The fault of a command that was not sent says only that; the connection knows why.
    if (!mayHaveRun && !fault.isRefused && !this.isReady) {
      return { status: 'fault', error: this.connection.problem, mayHaveRun, disconnected };
    }
    if (this.#lastFault?.[0] !== fault) {
      const advice = fault.isReadOnly ? this.connection.leaveReplica() : undefined;
      const error = nodeError(this.name, message, advice, isOfKey);
      this.#lastFault = [fault, { status: 'fault', error, mayHaveRun, disconnected }];
    }
    return this.#lastFault[1];
  }

  /** Called by the inbox. */
  onMessage(text: string): void {
    const { ticket, grant, lock, takenKey } = readMessage(text);
    if (takenKey !== undefined) {
      this.#listener?.onTaken(takenKey, ticket);
      return;
    }
    // A lock is not held before its replicas have it, and none is begun that cannot be extended now.
    const mayBegin = grant && this.#settings.handsOver && this.#settings.awaitedReplicas === 0 && this.isReady;
    const handOver = mayBegin ? new ToldHandOver(ticket, grant, this.#timeAt) : undefined;
    this.#listener?.onTurn(ticket, handOver, lock && this.#keys.keyIn(lock));
  }

  /** Called by the inbox. */
  onListening(key?: string): void {
    if (key === undefined) this.#listener?.onTurn();
    else this.#listener?.onListening(key);
  }

  /** Called by the inbox. Without sharded messages each goes to all nodes of a Cluster. */
  onRefused(command: Listening, refusal: string): void {
    if (this.#inbox instanceof ShardedInbox) {
      this.#inbox.close();
      const plain = this.#plainInbox();
      this.#inbox = plain;
      if (!this.#closed) plain.open();
      if (refusal.startsWith('NOPERM')) {
        this.#listener?.onWarning(
          `${this.name} does not let this process use sharded messages (${refusal}): each lock that is handed over sends a ` +
            `message to all nodes of the Cluster. Give its user the rights ${FOR_SHARDED_MESSAGES} (ACL SETUSER).`,
        );
      }
      return;
    }
    const isOfChannel = /access (a|one of the) channels?/.test(refusal);
    const right = isOfChannel ? `&${this.#settings.keyPrefix}:inbox:*` : `+${command}`;
    this.#listener?.onWarning(
      `${this.name} does not let calls that wait hear of their turns (${refusal}): they ask from time to time instead. ` +
        `Give its user the right ${right} (ACL SETUSER).`,
    );
  }

  #becomeReady(): void {
    this.#hurry();
    this.#inbox.check(); // what broke one connection may have broken the other, too
    this.onReady?.();
  }

  #hurry(): void {
    this.#retry.hurry();
    this.onReachable?.();
  }

  #release(item: PendingRelease, forMs: number, done?: (release: NodeRelease) => void): void {
    this.#releasing.begin();
    let endsAt: number | undefined;
    const given = (release: NodeRelease) => {
      if (release.status === 'fault' && this.#isRefusedForNow(release)) {
        endsAt ??= monotonic() + this.#settings.commandTimeoutMs;
        if (monotonic() < endsAt) {
          outsideOfCalls(() => setTimeout(() => this.#giveBack(item, given), REFUSED_PAUSE_MS)).unref();
          return;
        }
      }
      this.#releasing.end();
      // A place that can only be woken does no harm if it stays; a lock that was handed over to one must go on.
      const matters = item.entry === undefined || this.#settings.handsOver;
      if (release.status === 'fault' && matters) this.#retry.add(item, forMs);
      done?.(release);
    };
    this.#giveBack(item, given);
  }

  /** Its connection lives, and nothing has run. A Redlock has other nodes, and does not wait for this one. */
  #isRefusedForNow({ disconnected, mayHaveRun }: Fault): boolean {
    return this.handsOver && this.isReady && disconnected && !mayHaveRun;
  }

  #giveBack(
    { key, owner, hold = EXCLUSIVE, entry, keepUntil }: PendingRelease,
    done: (release: NodeRelease) => void,
  ): void {
    const keptForMs = leftMs(keepUntil);
    if (keptForMs > 0) {
      this.#runner.run(KEEP, [this.#keys.lock(key)], [keptForMs, ownerPart(owner)], this.#releaseOf, done);
      return;
    }
    const keys = this.#keysToHandOver(key);
    if (entry === undefined && hold.mode !== 'exclusive') {
      const args = [this.#inbox.signOf(key), owner, '', 0, ...crowdArgs(hold), '', '', 0, 0, ''];
      this.#runner.run(GIVE_CROWD, keys, args, this.#releaseOf, done);
    } else if (entry === undefined) this.#runner.run(RELEASE, keys, [ownerPart(owner)], this.#releaseOf, done);
    else this.#runner.run(WITHDRAW, keys, [ownerPart(owner), entry], this.#releaseOf, done);
  }

  #plainInbox(): PlainInbox {
    const { client, clientName } = this.connection;
    return new PlainInbox(this.#keys.inbox(this.#settings.processName), client, clientName, this);
  }

  #shardedInbox(): ShardedInbox {
    const { client, clientName } = this.connection;
    return new ShardedInbox(this.#keys.inbox(this.#settings.processName), client, clientName, this, this.#keys);
  }

  #keysToHandOver(key: string): string[] {
    return [this.#keys.fenceToHandOver(key), this.#keys.lock(key), this.#keys.queue(key)];
  }

  #entry({ ticket, turns, hold }: Place): string {
    if (hold.mode !== 'exclusive') return crowdEntry(hold, this.#inbox.channel, ticket);
    return queueEntry(this.#settings.handsOver ? 'grant' : 'wake', this.#inbox.channel, ticket, turns);
  }

  #checked<V extends Vote | Joined>(vote: V): V {
    // When its turn came, this process was not listening, or the message was lost.
    if (vote.status === 'refused' && vote.wasPassedOver) this.#inbox.check();
    return vote;
  }

  /** The largest error of its estimates of its servers' clocks, in milliseconds; undefined before the first estimate. */
  clockErrorMs(): number | undefined {
    const errors = [...this.#clocks.values()].flatMap(({ errorUs = [] }) => errorUs);
    return errors.length > 0 ? Math.max(...errors) / 1_000 : undefined;
  }

  #clockOf(name: string): ServerClock {
    const server = this.connection.client.topology.routeOf(name).at(-1)!;
    let clock = this.#clocks.get(server);
    if (!clock) this.#clocks.set(server, (clock = new ServerClock()));
    return clock;
  }
}
