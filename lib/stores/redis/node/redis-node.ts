import { adviceFor, NodeError, type LockUnavailableError } from '../../../api/errors.js';
import type { LockMode } from '../../../api/lock.js';
import type { Sending, Wanted } from '../../../core/backend/lane.js';
import {
  EXCLUSIVE,
  type AcquireRequest,
  type ExtendOutcome,
  type ExtendRequest,
  type Grant,
  type Holding,
  type ListRequest,
  type LockBackend,
  type Place,
  type ReleaseOutcome,
  type Taken,
  type Transfer,
  type TransferOutcome,
  type WaitListener,
  type WaitQueue,
} from '../../../core/backend/lock-backend.js';
import { leftMs, monotonic } from '../../../core/time/clock.js';
import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { ServerClock } from '../../../core/time/server-clock.js';
import type { InboxListener, Listening } from '../../node/ear.js';
import { GRANT_TTL_MS, readMessage, HandOverMessage } from '../../node/messages.js';
import {
  failed,
  ServerBackend,
  type Standalone,
  type Answer,
  type AttemptCallback,
  type Failed,
  type ReleaseRequest,
  type Scan,
} from '../../node/server.backend.js';
import { nodeError, unreachable } from '../client/advice.js';
import { ask } from '../client/ask.js';
import type { RedisConnection } from '../client/redis-connection.js';
import type { ServerIdentity } from '../client/server-identity.js';
import { ScriptFault } from '../scripts/script-fault.js';
import { ScriptRunner, type Reply } from '../scripts/script-runner.js';
import { PlainInbox, type Inbox } from './inbox.js';
import { KeyScan } from './key-scan.js';
import { countersOf, togetherEntry, LockKeys, queueEntry } from './lock-keys.js';
import * as scripts from './lock-scripts.js';
import type { Admission, SentAttempt, Attempt, LockCall, NodeAdmission, Vote } from './lock-scripts.js';
import { ShardedInbox } from './sharded-inbox.js';

/** Advice for a call that timed out before its attempt was sent. */
const CONGESTION_ADVICE =
  'If it answers other clients, this process asks for more locks at a time than the server can answer: raise waitMs, or ask for fewer together.';

/** The rights for sharded messages in a Cluster. Other messages go to all nodes. */
const SHARDED_RIGHTS = '+ssubscribe +sunsubscribe +spublish +pubsub|shardnumsub';

const MODES: readonly LockMode[] = ['shared', 'permits'];

export interface NodeSettings {
  /** First part of every key: `<keyPrefix>:{<key>}`. */
  keyPrefix: string;
  /** How long the server may owe answers and give none, in milliseconds. */
  commandTimeoutMs: number;
  /** The name of this process, part of the name of its inbox. */
  processName: string;
  /** Whether a release hands the lock over to the next place in the queue. A node of a Redlock only wakes it up. */
  handsOver: boolean;
  /** The number of replicas that must have a lock before it counts as held. */
  awaitedReplicas: number;
  /** Whether an answer counts only on the connection of its command: after a reconnection the server may have restarted. */
  needsAdmission: boolean;
  /** The clock of the service, in milliseconds: says when a command was sent. */
  now: () => number;
}

/** The locks of one Redis server or Cluster, which works alone or as a node of a Redlock. No operation rejects, except after a bug. */
export class RedisNode extends ServerBackend implements WaitQueue, InboxListener {
  readonly store = 'Redis';
  override readonly waitQueue = this;
  /** Undefined for a node of a Redlock, which cannot enforce a limit or know all readers. */
  override readonly modes?: readonly LockMode[];
  readonly releaseAndAcquire: NonNullable<LockBackend['releaseAndAcquire']> = this.releaseThenAttempt;
  readonly #runner: ScriptRunner;
  readonly #settings: NodeSettings;
  readonly #keys: LockKeys;
  readonly #scan: KeyScan;
  readonly #timeAt = (key: string, serverUs: number) => this.#clockOf(key).monotonicAt(serverUs);
  /** Called when this process missed its turn: it was not listening, or the message was lost. */
  readonly #onPassedOver = () => this.#inbox.check();
  /** By the last part of the route: the server if it is known, otherwise the slot. */
  readonly #clocks = new Map<number | string, ServerClock>();
  #inbox: Inbox;
  /** The last fault and its failure. All operations of a command share a fault, and so do all calls while the server hangs. */
  #lastFault?: [ScriptFault, Failed];
  #listener?: WaitListener;
  /** Called after each connection, before waiting commands are sent. */
  onReady?: () => void;
  #closed = false;
  #hasTriedQueue = false;

  /** @param alone undefined for a node of a Redlock */
  constructor(
    readonly connection: RedisConnection,
    settings: NodeSettings,
    alone?: Standalone,
  ) {
    super(settings, alone);
    this.#settings = settings;
    const { commandTimeoutMs, handsOver, needsAdmission, keyPrefix, now } = settings;
    const { client } = connection;
    this.modes = handsOver ? MODES : undefined;
    this.#runner = new ScriptRunner(client, commandTimeoutMs, {
      sameConnection: needsAdmission,
      onOverdue: (isOpen) => connection.suspect(isOpen),
      onAnswering: () => this.hurry(),
      now,
    });
    this.#keys = new LockKeys(keyPrefix, countersOf(handsOver, client.topology.isCluster), client.topology.keyPrefix);
    this.#scan = new KeyScan(connection, this.#keys, commandTimeoutMs);
    this.#inbox = handsOver && client.topology.isCluster ? this.#shardedInbox() : this.#plainInbox();
    connection.onReady = () => this.#becomeReady();
  }

  /** Whether a release hands the lock over to the next place in the queue. A node of a Redlock only wakes it up. */
  get handsOver(): boolean {
    return this.#settings.handsOver;
  }

  get sendsLater(): boolean {
    return this.connection.client.sendsLater;
  }

  get isReady(): boolean {
    return this.connection.isReady;
  }

  protected get isAnswered(): boolean {
    return this.#runner.isAnswered;
  }

  /** Whether this process receives messages about the turns of a key. */
  isListening(key: string): boolean {
    return this.#inbox.isOpen(key);
  }

  override problem(silence: string): NodeError | undefined {
    const problem = super.problem(silence);
    const isCongested = problem !== undefined && this.isReady && this.#runner.isCongested;
    return isCongested ? new NodeError(this.name, silence, CONGESTION_ADVICE) : problem;
  }

  /** Begins to listen for messages about a key, unless it listens already. */
  listen(key: string, listener: WaitListener): void {
    this.#listener = listener;
    if (this.#closed) return;
    this.#inbox.open(key);
    if (!this.#hasTriedQueue) outsideOfCalls(() => void this.#tryQueue(key));
  }

  /**
   * Tries the commands of queues once, without changing anything, and warns about missing rights. Nothing else would reveal them: scripts
   * skip the commands that the user may not run.
   */
  async #tryQueue(key: string): Promise<void> {
    this.#hasTriedQueue = true;
    const { client } = this.connection;
    const { isCluster, keyPrefix } = client.topology;
    const queue = keyPrefix + this.#keys.queue(key);
    const listeners = ['PUBSUB', isCluster ? 'SHARDNUMSUB' : 'NUMSUB'] as const;
    const answers = await ask(client, [
      ['ZADD', queue, 'XX', '0', '-'],
      ['ZRANGE', queue, '0', '0'],
      ['ZMSCORE', queue, '-'],
      ['ZREM', queue, '-'],
      ['ZREMRANGEBYSCORE', queue, '1', '0'],
      ...(this.handsOver ? [listeners] : []),
    ]).catch(() => undefined); // the connection broke
    if (!answers) this.#hasTriedQueue = false;
    const refused = (answers ?? []).flatMap((answer) => ('refusal' in answer ? answer.refusal : []));
    const causes = refused.filter((each) => each.startsWith('NOPERM')).map((each) => this.errorOf(each));
    if (causes.length === 0 || this.#closed) return;
    const problems = causes.map(({ problem }) => problem).join('; ');
    this.#listener?.onWarning(
      `${this.name} does not let this process run all commands that the queues of locks need (${problems}): waiting calls may get their ` +
        `turns late. ${adviceFor(causes)}`,
    );
  }

  checkListening(key: string): void {
    this.#inbox.check(key);
  }

  /**
   * Tries once to acquire a lock. The reply of the script becomes one of these answers:
   *
   * | reply                                    | answer                                                                      |
   * | ---------------------------------------- | --------------------------------------------------------------------------- |
   * | a token; `granted`                       | `acquired`, with a grant                                                    |
   * | `queue`, of `acquire-in-order.lua`       | none: it asks again with `turn.lua`, which serves the queue                 |
   * | `refused`                                | `contended`, with the holder, and with a place in the queue if one was given |
   * | `failed`: only the release was done      | `unavailable`, not run                                                      |
   * | an error of Redis before any change      | `unavailable`, not run; `disconnected` if the refusal is temporary          |
   * | no answer in time, or the connection broke | `unavailable`, may have run                                               |
   * | never sent                               | `unavailable`, not run                                                      |
   * | anything else: another program answered  | `unavailable`, may have run                                                 |
   */
  protected attempt(request: AcquireRequest, done: AttemptCallback, ownerToRelease?: string): void {
    const { key, hold, place, turns = 1, inOrder, asker } = request;
    const isForOne = hold.mode === 'exclusive' && !place && turns === 1 && ownerToRelease === undefined;
    // `acquire.lua` does not return the time of the server, which the next call may need for its place.
    const isTimeKnown = !inOrder || this.#clockOf(key).isFresh(monotonic());
    if (!isForOne || !isTimeKnown) return this.#attemptToWait(request, done, ownerToRelease);
    const taken = (reply: Reply | ScriptFault, sentAt: number) => {
      if (reply instanceof ScriptFault) done(this.#failedBy(reply), sentAt);
      else if (scripts.isForQueue(reply)) this.#attemptToWait(request, done);
      else done(scripts.readAcquire(reply, this.name, request, sentAt), sentAt);
    };
    this.#run(scripts.acquireCall(this.#keys, request), taken, asker);
  }

  /** Makes an attempt with a script that serves the queue: it can take a place, mint several tokens, and release a lock. */
  #attemptToWait(request: AcquireRequest, done: AttemptCallback, ownerToRelease?: string): void {
    const { key, hold, place, asker } = request;
    const keys = this.#keys;
    const clock = this.#clockOf(key);
    const attempt: Attempt = {
      sign: this.#inbox.signOf(key),
      ownerToRelease,
      entry: place && this.#entry(place),
      number: place && clock.at(place.arrivedAt),
    };
    const isAlone = hold.mode === 'exclusive';
    const call = isAlone
      ? scripts.turnCall(keys, request, attempt)
      : scripts.acquireTogetherCall(keys, hold, request, attempt);
    const answered = (reply: Reply | ScriptFault, sentAt: number) => {
      if (reply instanceof ScriptFault) return done(this.#failedBy(reply), sentAt);
      const receivedAt = monotonic();
      const asked: SentAttempt = {
        node: this.name,
        request,
        sentAt,
        askedAt: receivedAt - (this.#settings.now() - sentAt),
        receivedAt,
        connection: this.connection.generation,
        clock,
        onPassedOver: this.#onPassedOver,
      };
      const answer = isAlone ? scripts.readTurn(reply, asked) : scripts.readAcquireTogether(reply, asked);
      const isUnknown = answer.status === 'unavailable' && answer.mayHaveRun;
      done(answer, sentAt, isUnknown ? undefined : scripts.readReleaseResult(reply));
    };
    this.#run(call, answered, asker);
  }

  /**
   * Attempts to acquire a lock on one of the nodes of a Redlock.
   * @param admission undefined if the node votes without admission
   * @param vote the value of the lock, with the proposed fencing token. The node votes for it if its clock and its counter allow that
   * @param done its second argument is the time when the command was sent, or when it failed unsent
   * @param wanted the caller
   * @returns the state of the unsent command; undefined if it will never be sent
   */
  vote(
    request: AcquireRequest,
    admission: Admission | undefined,
    vote: string,
    done: (vote: Vote, sentAt: number) => void,
    wanted?: Wanted,
  ): Sending | undefined {
    const { key, place } = request;
    const voted = (reply: Reply | ScriptFault, sentAt: number) => {
      const answer = reply instanceof ScriptFault ? this.#failedBy(reply) : scripts.readVote(reply, this.name);
      if (answer.status === 'refused' && answer.wasPassedOver) this.#inbox.check();
      done(answer, sentAt);
    };
    // A process that does not listen cannot be woken up.
    const entry = place && this.isListening(key) ? this.#entry(place) : undefined;
    return this.#run(scripts.voteCall(this.#keys, request, { vote, epoch: admission?.epoch, entry }), voted, wanted);
  }

  /** @param longestMs the longest ttl in use, as far as the caller knows */
  admit({ run, uptimeS }: ServerIdentity, longestMs: number): Promise<NodeAdmission | Failed> {
    return this.#ask(scripts.admitCall(this.#keys, run, uptimeS, longestMs), scripts.readAdmission);
  }

  /**
   * Gives up a place in the queue, and the lock if it was handed over to that place. Retries without limit: a place has no ttl, and every
   * waiter keeps the queue alive.
   */
  leave(key: string, place: Place): void {
    this.release({ key, owner: place.ticket }, { entry: this.#entry(place) }, undefined, Infinity);
  }

  /** Ignores the tickets of other processes: the message may be forged. */
  decline(key: string, ticket: string): void {
    const isOwn = ticket.startsWith(`${this.#settings.processName}/`);
    if (isOwn) this.release({ key, owner: ticket }, { entry: '' }, undefined, GRANT_TTL_MS);
  }

  protected prolong(request: ExtendRequest, done: (answer: Answer<ExtendOutcome>) => void): void {
    this.#run(scripts.extendCall(this.#keys, request), this.#reading(scripts.readExtension, done));
  }

  /** Extends a lock on a node of a Redlock, and writes it again with the token of its grant if it is missing. */
  restore(grant: Grant, ttlMs: number, done: (answer: Answer<ExtendOutcome>) => void): void {
    this.#run(scripts.restoreCall(this.#keys, grant, ttlMs), this.#reading(scripts.readExtension, done));
  }

  move(request: Transfer, done: (answer: Answer<TransferOutcome>) => void): void {
    const read = (reply: Reply, sentAt: number) => scripts.readTransfer(reply, this.name, request, sentAt);
    this.#run(scripts.transferCall(this.#keys, request), this.#reading(read, done));
  }

  /** Keeping a lock does not wait for replicas: without this command they still have the lock until its last extension expires. */
  protected giveBack(grant: Grant, how: ReleaseRequest, done: (answer: Answer<ReleaseOutcome>) => void): void {
    // On a node of a Redlock a leftover place does no harm. Elsewhere it may own a handed-over lock, which must be passed on.
    const isHarmless = how.entry !== undefined && !this.handsOver;
    const given = (answer: Answer<ReleaseOutcome>) =>
      done(answer.status === 'unavailable' ? { status: 'gone' } : answer);
    this.#run(this.#releaseCall(grant, how), this.#reading(scripts.readRelease, isHarmless ? given : done));
  }

  #releaseCall(grant: Grant, { entry, keepUntil }: ReleaseRequest): LockCall {
    const keys = this.#keys;
    const { key, owner, hold = EXCLUSIVE } = grant;
    const keptForMs = leftMs(keepUntil);
    if (keptForMs > 0) return scripts.keepCall(keys, key, owner, keptForMs);
    if (entry !== undefined) return scripts.withdrawCall(keys, key, owner, entry);
    if (hold.mode === 'exclusive') return scripts.releaseCall(keys, key, owner);
    return scripts.releaseTogetherCall(keys, hold, grant, this.#inbox.signOf(key));
  }

  /**
   * Raises the fencing counter of a lock to a token, and makes it the token of the lock.
   * @returns `raised` if the counter is at or above the token, the owner still holds the lock, and its vote was not above the token
   */
  raiseFence(grant: Grant, fencingToken: number): Promise<ReturnType<typeof scripts.readRaise> | Failed> {
    return this.#ask(scripts.raiseFenceCall(this.#keys, grant, fencingToken), scripts.readRaise);
  }

  view(key: string): Promise<Holding | undefined | Failed> {
    return this.#ask(scripts.inspectCall(this.#keys, key), scripts.readHolding);
  }

  scan(request: ListRequest): Promise<Scan | Failed> {
    return this.#scan.run(request);
  }

  seize(key: string, from = ''): Promise<Taken | undefined | Failed> {
    return this.#ask(scripts.forceReleaseCall(this.#keys, key, from), scripts.readTaken);
  }

  protected unreachable(problem: NodeError, timeoutMs: number): LockUnavailableError {
    return unreachable([problem], timeoutMs);
  }

  protected errorOf(problem: string): NodeError {
    return nodeError(this.name, problem);
  }

  insist(): void {
    this.#runner.insist();
  }

  protected override closing(): void {
    this.#closed = true;
    this.insist();
  }

  protected override closed(): void {
    this.#inbox.close();
  }

  #run(
    { script, keys, args }: LockCall,
    done: (reply: Reply | ScriptFault, sentAt: number) => void,
    wanted?: Wanted,
  ): Sending | undefined {
    return this.#runner.run(script, keys, args, done, wanted);
  }

  #ask<T>({ script, keys, args }: LockCall, read: (reply: Reply) => T): Promise<T | Failed> {
    return this.#runner.ask(script, keys, args, (reply) =>
      reply instanceof ScriptFault ? this.#failedBy(reply) : read(reply),
    );
  }

  #reading<T>(
    read: (reply: Reply, sentAt: number) => T | Failed,
    done: (answer: T | Failed) => void,
  ): (reply: Reply | ScriptFault, sentAt: number) => void {
    return (reply, sentAt) => done(reply instanceof ScriptFault ? this.#failedBy(reply) : read(reply, sentAt));
  }

  #failedBy(fault: ScriptFault): Failed {
    const { message, mayHaveRun, disconnected, isOfKey } = fault;
    // The fault of an unsent command has no details. The connection knows the reason.
    if (!mayHaveRun && !fault.isRefused && !this.isReady)
      return failed(this.connection.problem, mayHaveRun, disconnected);
    if (this.#lastFault?.[0] !== fault) {
      const advice = fault.isReadOnly ? this.connection.leaveReplica() : undefined;
      const error = nodeError(this.name, message, advice, isOfKey);
      this.#lastFault = [fault, failed(error, mayHaveRun, disconnected)];
    }
    return this.#lastFault[1];
  }

  /** Called by the inbox for each message. */
  onMessage(text: string): void {
    const { ticket, grant, lock, takenKey } = readMessage(text);
    if (takenKey !== undefined) {
      this.#listener?.onTaken(takenKey, ticket);
      return;
    }
    // A lock is not held before its replicas have it, and a lease must not begin while the connection cannot extend it.
    const mayBegin = grant && this.#settings.handsOver && this.#settings.awaitedReplicas === 0 && this.isReady;
    const handOver = mayBegin ? new HandOverMessage(ticket, grant, this.#timeAt) : undefined;
    this.#listener?.onTurn(ticket, handOver, lock && this.#keys.keyIn(lock));
  }

  /** Called by the inbox when listening begins or ends. */
  onListening(key?: string): void {
    if (key === undefined) this.#listener?.onTurn();
    else this.#listener?.onMayBeFree(key);
  }

  /** Called by the inbox. Without sharded messages, each message goes to all nodes of a Cluster. */
  onRefused(command: Listening, refusal: string): void {
    if (this.#inbox instanceof ShardedInbox) {
      this.#inbox.close();
      const plain = this.#plainInbox();
      this.#inbox = plain;
      if (!this.#closed) plain.open();
      if (refusal.startsWith('NOPERM')) {
        this.#listener?.onWarning(
          `${this.name} does not let this process use sharded messages (${refusal}): each lock that is handed over sends a ` +
            `message to all nodes of the Cluster. Give its user the rights ${SHARDED_RIGHTS} (ACL SETUSER).`,
        );
      }
      return;
    }
    const concernsChannel = /access (a|one of the) channels?/.test(refusal);
    const right = concernsChannel ? `&${this.#settings.keyPrefix}:inbox:*` : `+${command}`;
    this.#listener?.onWarning(
      `${this.name} does not let this process subscribe to the turns of its waiting calls (${refusal}): they poll instead. ` +
        `Give its user the right ${right} (ACL SETUSER).`,
    );
  }

  #becomeReady(): void {
    this.hurry();
    this.#inbox.check(); // the same cause may have broken both connections
    this.onReady?.();
  }

  #plainInbox(): PlainInbox {
    const { client, clientName } = this.connection;
    return new PlainInbox(this.#keys.inbox(this.#settings.processName), client, clientName, this);
  }

  #shardedInbox(): ShardedInbox {
    const { client, clientName } = this.connection;
    return new ShardedInbox(this.#keys.inbox(this.#settings.processName), client, clientName, this, this.#keys);
  }

  #entry({ ticket, turns, hold }: Place): string {
    if (hold.mode !== 'exclusive') return togetherEntry(hold, this.#inbox.channel, ticket);
    return queueEntry(this.#settings.handsOver ? 'grant' : 'wake', this.#inbox.channel, ticket, turns);
  }

  /** The largest error bound of the estimated server clocks, in milliseconds; undefined before the first estimate. */
  clockErrorMs(): number | undefined {
    const errors = [...this.#clocks.values()].flatMap(({ errorUs = [] }) => errorUs);
    return errors.length > 0 ? Math.max(...errors) / 1_000 : undefined;
  }

  #clockOf(key: string): ServerClock {
    const server = this.connection.client.topology.routeOf(this.#keys.lock(key)).at(-1)!;
    let clock = this.#clocks.get(server);
    if (!clock) this.#clocks.set(server, (clock = new ServerClock()));
    return clock;
  }
}
