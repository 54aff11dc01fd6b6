import type {
  AcquireRequest,
  ExtendRequest,
  Grant,
  GuardStatement,
  Place,
  Releasing,
  Transfer,
  WaitListener,
  WaitQueue,
} from '../../../core/backend/lock-backend.js';
import { leftMs, monotonic } from '../../../core/time/clock.js';
import { nextTick } from '../../../core/time/event-loop.js';
import { ServerClock } from '../../../core/time/server-clock.js';
import type { NodeExtension, NodeRelease, NodeSeizure, NodeTransfer, NodeView, Vote } from '../../node/answers.js';
import { standsMs, ToldHandOver } from '../../node/grants.js';
import type { LockNode } from '../../node/lock-node.js';
import { GRANT_TTL_MS, readMessage, TAKEN } from '../../node/messages.js';
import { EVERY_MS, JANITOR_KEY } from '../janitor.js';
import type { Row, SqlClient, SqlSource } from '../sql-client.js';
import { SqlFault } from '../sql-fault.js';
import {
  GUARDED_FOR_MS,
  holdingOf,
  is,
  SqlNode,
  text,
  transferOf,
  type PendingRelease,
  type Seen,
  type SqlSettings,
} from '../sql-node.js';
import { fromStored, stored } from '../stored-key.js';
import { PostgresInbox, type PostgresInboxListener } from './postgres-inbox.js';
import type { PostgresClient } from './postgres-source.js';
import { ddl, guardOf, postgresStatements, type PostgresStatements } from './statements.js';

/** Others may wait for a lock that was held for longer than this, in microseconds: it is given back by the statement that hands it over. */
const AWAITED_AFTER_US = 10_000;
/** Whoever holds the lock gives it back. No owner value is like it. */
const WHOEVER = '*';

/** What one operation of the statement `turn` asks for. */
interface Turn {
  key: string;
  give?: string;
  owner?: string;
  ticket?: string;
  ttlMs?: number;
  turns?: number;
  number?: number;
  queues?: boolean;
  calls?: number;
}

/** The operations on locks in a table of PostgreSQL. None of them rejects, except for a bug. */
export class PostgresNode extends SqlNode implements LockNode, WaitQueue, PostgresInboxListener {
  readonly store = 'PostgreSQL';
  readonly handsOver = true;
  readonly waitQueue = this;
  protected readonly statements: PostgresStatements;
  readonly #inbox: PostgresInbox;
  readonly #channel: string;
  readonly #clock = new ServerClock();
  readonly #timeAt = (key: string, serverUs: number) => this.timeAt(key, serverUs);
  /** What other processes are told at the end of this tick: channel and message. */
  #untold: [string, string][] = [];
  #listener?: WaitListener;

  protected readonly ddl: string;

  constructor(source: SqlSource<PostgresClient>, settings: SqlSettings) {
    super(source, settings);
    this.ddl = ddl(settings.table);
    this.statements = postgresStatements(settings.table);
    this.#channel = channelOf(`${settings.processName}/`)!;
    const notify = (text: string) => this.#notify([[this.#channel, text]]);
    this.#inbox = new PostgresInbox(
      this.#channel,
      source,
      (client) => this.endLastSession(client, 'inbox'),
      notify,
      this,
    );
  }

  acquire(request: AcquireRequest, done: (vote: Vote, sentAt: number) => void, give?: string): void {
    const { place, turns = 1 } = request;
    if (turns === 1 && !place && give === undefined && this.runner.isAnswered) this.#take(request, done);
    else this.#attempt(request, give, done);
  }

  extend(request: ExtendRequest, _: 'keep', done: (extension: NodeExtension, sentAt: number) => void): void {
    const { grant, ttlMs, waiting } = request;
    const { key, owner } = grant;
    const read = (row: Row | SqlFault): NodeExtension => {
      if (row instanceof SqlFault) return this.faultOf(row);
      return { status: is(row.is_done) ? 'extended' : is(row.is_held) ? 'foreign' : 'absent' };
    };
    this.runner.run(this.statements.extend, key, [stored(key), owner, ttlMs, false, waiting?.calls ?? 0], read, done);
  }

  release(
    grant: Grant,
    { keepUntil }: Releasing,
    done?: (release: NodeRelease) => void,
    forMs = standsMs(grant),
  ): void {
    const { key, owner, fencingToken = 0, nobodyBefore } = grant;
    const heldUs = (this.#clock.at(monotonic()) ?? Infinity) - fencingToken;
    const isAlone = nobodyBefore === undefined && heldUs < AWAITED_AFTER_US;
    this.give({ key, owner, keepUntil, isAlone }, forMs, done);
  }

  transfer(request: Transfer, done: (transfer: NodeTransfer, sentAt: number) => void): void {
    const { key, from, to, ttlMs, mints, atLeast = false } = request;
    const read = (row: Row | SqlFault): NodeTransfer => {
      if (row instanceof SqlFault) return this.faultOf(row);
      if (is(row.is_guarded)) return this.guarded();
      return transferOf(row);
    };
    this.runner.run(this.statements.transfer, key, [stored(key), from, to, ttlMs, mints, atLeast], read, done);
  }

  guard(grants: readonly Grant[], passedOnForMs = Infinity): GuardStatement {
    const isPassedOn = passedOnForMs < Infinity;
    const values = grants.flatMap(({ key, owner, fencingToken }) => [stored(key), owner, fencingToken ?? 0]);
    return {
      dialect: 'postgres',
      text: guardOf(this.settings.table, grants.length, isPassedOn),
      values: isPassedOn ? [...values, passedOnForMs] : values,
    };
  }

  leave(key: string, { ticket }: Place): void {
    this.give({ key, owner: ticket, isPlace: true }, Infinity);
  }

  /** Tickets of others are left alone: anybody who may notify can send such a message. */
  decline(key: string, ticket: string): void {
    const isOwn = ticket.startsWith(`${this.settings.processName}/`);
    if (isOwn) this.give({ key, owner: ticket, isPlace: true }, GRANT_TTL_MS);
  }

  timeAt(_: string, serverUs: number): number | undefined {
    return this.#clock.monotonicAt(serverUs);
  }

  clockErrorMs(): number | undefined {
    const { errorUs } = this.#clock;
    return errorUs === undefined ? undefined : errorUs / 1_000;
  }

  isListening(): boolean {
    return this.#inbox.isOpen();
  }

  listen(_: string, listener: WaitListener): void {
    this.#listener = listener;
    this.#inbox.open();
  }

  checkListening(): void {
    this.#inbox.check();
  }

  async inspect(key: string): Promise<NodeView> {
    const row = await this.runner.ask(this.statements.inspect, [stored(key)], key);
    return row instanceof SqlFault ? this.faultOf(row) : { status: 'seen', holding: holdingOf(row) };
  }

  async forceRelease(key: string, from = WHOEVER): Promise<NodeSeizure> {
    return new Promise((resolve) => {
      this.#turn({ key, give: from }, (row) => {
        if (row instanceof SqlFault) return resolve(this.faultOf(row));
        if (is(row.is_guarded)) return resolve(this.guarded());
        if (!is(row.gives)) return resolve({ status: 'absent' });
        const holder = text(row.holder);
        if (!is(row.is_kept)) this.#tell(channelOf(holder), `${holder} ${TAKEN} ${stored(key)}`);
        resolve({ status: 'taken', from: [holder] });
      });
    });
  }

  override async close(): Promise<void> {
    await super.close();
    this.#inbox.close();
  }

  /** Called by the inbox. */
  onMessage(text: string): void {
    const { ticket, grant, lock, takenKey } = readMessage(text);
    if (takenKey !== undefined) this.#listener?.onTaken(fromStored(takenKey), ticket);
    // None is begun with that cannot be extended now.
    else
      this.#listener?.onTurn(
        ticket,
        grant && this.connection.isReady ? new ToldHandOver(ticket, grant, this.#timeAt) : undefined,
        lock && fromStored(lock),
      );
  }

  /** Called by the inbox. */
  onListening(): void {
    this.#listener?.onTurn();
  }

  /** Called by the inbox. */
  onDeaf(): void {
    this.#listener?.onWarning(
      `${this.name} does not deliver notifications to this process, so calls that wait for their locks ask from time to time instead. ` +
        'Is it a pooler that gives connections away after each transaction (PgBouncer)? Give the address of PostgreSQL itself.',
    );
  }

  #attempt(request: AcquireRequest, give: string | undefined, done: (vote: Vote, sentAt: number) => void): void {
    const { key, owner, ttlMs, place, turns = 1, asker } = request;
    const turn: Turn = { key, give, owner, ttlMs, turns };
    if (place) {
      turn.ticket = place.ticket;
      turn.number = this.#clock.at(place.arrivedAt);
      turn.queues = true;
      turn.calls = place.calls;
    }
    const answered = (row: Row | SqlFault, sentAt: number) => {
      if (row instanceof SqlFault) return done(this.faultOf(row), sentAt);
      this.#learn(row, sentAt);
      done(this.#voteOf(row, request, give), sentAt);
    };
    this.#turn(turn, answered, asker);
  }

  /** Tries to take a lock alone, as if it were free and nobody waited for it. */
  #take(request: AcquireRequest, done: (vote: Vote, sentAt: number) => void): void {
    const { key, owner, ttlMs, asker } = request;
    const taken = (row: Row | SqlFault, sentAt: number) => {
      if (row instanceof SqlFault) done(this.faultOf(row), sentAt);
      else if (row.token === undefined) this.#attempt(request, undefined, done);
      else done({ status: 'granted', fencingToken: Number(row.token) }, sentAt);
    };
    this.runner.run(this.statements.take, key, [stored(key), owner, ttlMs], asItIs, taken, asker);
  }

  #turn(
    { key, give, owner, ticket, ttlMs, turns, number, queues = false, calls = 0 }: Turn,
    done: (row: Row | SqlFault, sentAt: number) => void,
    wanted?: AcquireRequest['asker'],
  ): void {
    const { turn, giveAndTurn } = this.statements;
    const values = [
      stored(key),
      give ?? null,
      owner ?? null,
      ticket ?? null,
      ttlMs ?? 0,
      turns ?? 1,
      number ?? null,
      queues,
      calls,
    ];
    const read = (row: Row | SqlFault) => {
      if (!(row instanceof SqlFault) && typeof row.granted === 'string') {
        const message = [row.granted, row.first_token, row.last_token, row.bound, stored(key)].join(' ');
        this.#tell(channelOf(row.granted), message);
      }
      return row;
    };
    this.runner.run(give === undefined ? turn : giveAndTurn, key, values, read, done, wanted);
  }

  #voteOf(row: Row, { place }: AcquireRequest, give: string | undefined): Vote {
    const isGuarded = is(row.is_guarded);
    const gaveBack =
      give === undefined || (isGuarded && is(row.gives)) ? undefined : is(row.gives) ? 'released' : 'gone';
    const nodeTimeUs = row.us === undefined ? undefined : Number(row.us);
    if (is(row.is_taken)) {
      const [fencingToken, lastToken, boundUs] = [row.first_token, row.last_token, row.bound].map(Number) as [
        number,
        number,
        number,
      ];
      return { status: 'granted', fencingToken, lastToken, boundUs, nodeTimeUs, gaveBack };
    }
    const isGranted = typeof row.granted === 'string';
    const remainingMs = isGranted ? GRANT_TTL_MS : Math.max(Number(row.remaining ?? 0), isGuarded ? GUARDED_FOR_MS : 0);
    const wasPassedOver = (place?.isTaken && !is(row.had_place)) || undefined;
    if (wasPassedOver) this.#inbox.check(); // when its turn came it did not listen, or the message was lost
    return {
      status: 'refused',
      owner: text((isGranted ? row.granted : row.holder) ?? ''),
      remainingMs,
      isKept: (!isGranted && is(row.is_kept)) || undefined,
      wasPassedOver,
      latestToken: place && Math.max(nodeTimeUs ?? 0, Number((isGranted ? row.last_token : row.fence) ?? 0)),
      nodeTimeUs,
      gaveBack,
    };
  }

  #learn({ us }: Row, sentAt: number): void {
    if (us === null || us === undefined) return;
    const receivedAt = monotonic();
    this.#clock.learn(Number(us), receivedAt - (this.settings.now() - sentAt), receivedAt);
  }

  protected giveBack(
    { key, owner, isAlone, isPlace, keepUntil }: PendingRelease,
    done: (release: NodeRelease) => void,
  ): void {
    const keptForMs = leftMs(keepUntil);
    if (keptForMs > 0) {
      const read = (row: Row | SqlFault): NodeRelease =>
        row instanceof SqlFault ? this.faultOf(row) : { status: is(row.is_done) ? 'released' : 'gone' };
      this.runner.run(this.statements.keep, key, [stored(key), owner, keptForMs, true, 0], read, done);
      return;
    }
    const giveOn = () =>
      this.#turn({ key, give: owner, ticket: isPlace ? owner : undefined }, (row) => {
        if (row instanceof SqlFault) done(this.faultOf(row));
        else if (is(row.is_guarded)) done(this.guarded());
        else done({ status: is(row.gives) ? 'released' : 'gone' });
      });
    if (!isAlone || !this.runner.isAnswered) return giveOn();
    const given = (row: Row | SqlFault) => {
      if (row instanceof SqlFault) done(this.faultOf(row));
      else if (row.is_done === undefined) giveOn();
      else done({ status: 'released' });
    };
    this.runner.run(this.statements.give, key, [stored(key), owner], asItIs, given);
  }

  /** Tells a process something: all that comes up in one tick together. */
  #tell(channel: string | undefined, message: string): void {
    if (channel === undefined) return;
    if (this.#untold.push([channel, message]) > 1) return;
    this.releasing.begin();
    nextTick(() => {
      const untold = this.#untold;
      this.#untold = [];
      const isOwn = ([to]: [string, string]) => to === this.#channel;
      // A message that is lost costs time only: whoever waits asks each second.
      void this.#notify(untold.filter((each) => !isOwn(each)))
        .catch(() => {})
        .then(() => this.releasing.end());
      for (const [, text] of untold.filter(isOwn)) this.onMessage(text);
    });
  }

  /** @throws NodeError when it is not known to have been sent */
  async #notify(messages: readonly [string, string][]): Promise<void> {
    const channels = messages.map(([channel]) => channel);
    const texts = messages.map(([, text]) => text);
    const answer = await this.runner.ask(this.statements.notify, [channels, texts]);
    if (answer instanceof SqlFault) throw this.faultOf(answer).error;
  }

  protected takeSweep(owner: string): Promise<boolean> {
    return new Promise((resolve) => {
      this.#turn({ key: JANITOR_KEY, owner, ttlMs: EVERY_MS }, (row) =>
        resolve(!(row instanceof SqlFault) && is(row.is_taken)),
      );
    });
  }

  protected async claimSession(client: PostgresClient, name: string): Promise<boolean> {
    const [row] = await client.query({ name: 'claim_session', text: CLAIM_SESSION }, [name, client.processId ?? null]);
    if (is(row!.is_claimed)) return true;
    // Where its user may not, it ends by itself.
    await client.query({ name: 'end_session', text: END_SESSION }, [name]).catch(() => {});
    return false;
  }

  /** Also at its clock, so that even the first call that waits has its place in order. */
  protected async look(client: SqlClient): Promise<Seen> {
    const sentAt = this.settings.now();
    const [seen] = await client.query({ name: 'look', text: LOOK }, [this.settings.table]);
    if (seen) this.#learn(seen, sentAt);
    return { table: is(seen?.has_table) ? 'there' : 'missing', readsOnly: is(seen?.reads_only) };
  }
}

/** A session lock, whose key is the name. A pooler, which has a process id of its own, would lend it to others: there is no name behind one. */
const CLAIM_SESSION = `
SELECT (CASE WHEN pg_backend_pid() = $2::int THEN pg_try_advisory_lock(hashtextextended($1::text, 0)) ELSE true END)::int AS is_claimed`;
const END_SESSION = `
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint << 32 | objid::bigint = hashtextextended($1::text, 0)
  AND granted AND pid <> pg_backend_pid()`;

const LOOK = `
SELECT (to_regclass($1::text) IS NOT NULL)::int AS has_table, (extract(epoch FROM clock_timestamp()) * 1000000)::text AS us,
  (pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')::int AS reads_only`;

/** The channel of the process that an owner value belongs to; undefined for what is none. */
function channelOf(owner: string): string | undefined {
  const [, , random] = owner.split('/');
  return random ? `nest_redis_lock_${Buffer.from(random).toString('hex')}` : undefined;
}

function asItIs(row: Row | SqlFault): Row | SqlFault {
  return row;
}
