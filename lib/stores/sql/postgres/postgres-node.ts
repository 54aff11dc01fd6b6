import type {
  AcquireOutcome,
  AcquireRequest,
  ExtendOutcome,
  ExtendRequest,
  Grant,
  GuardStatement,
  LockBackend,
  Place,
  ReleaseOutcome,
  Taken,
  Transfer,
  TransferOutcome,
  WaitListener,
  WaitQueue,
} from '../../../core/backend/lock-backend.js';
import { leftMs, monotonic } from '../../../core/time/clock.js';
import { nextTick } from '../../../core/time/event-loop.js';
import { ServerClock } from '../../../core/time/server-clock.js';
import type { InboxListener } from '../../node/ear.js';
import { GRANT_TTL_MS, hintOf, readMessage, TAKEN, HandOverMessage } from '../../node/messages.js';
import {
  StoredGrant,
  type Standalone,
  type Answer,
  type AttemptCallback,
  type Failed,
  type ReleaseResult,
  type ReleaseRequest,
} from '../../node/server.backend.js';
import { EVERY_MS, JANITOR_KEY } from '../janitor.js';
import type { Row, SqlClient, SqlSource } from '../sql-client.js';
import { SqlFault } from '../sql-fault.js';
import {
  extensionOf,
  GUARDED_FOR_MS,
  is,
  releaseOf,
  SqlNode,
  text,
  transferOf,
  type Seen,
  type SqlSettings,
} from '../sql-node.js';
import type { Answered } from '../statement-runner.js';
import { fromStored, stored } from '../stored-key.js';
import { PostgresInbox } from './postgres-inbox.js';
import type { PostgresClient } from './postgres-source.js';
import { ddl, guardOf, postgresStatements, turnValues, type PostgresStatements, type Turn } from './statements.js';

/** After a longer hold, in microseconds, others probably wait. Then the statement `turn` releases the lock, since it also hands it over. */
const QUEUE_LIKELY_AFTER_US = 10_000;
/** Means any holder in a forced release. No owner value has this form. */
const ANY_OWNER = '*';

/** The operations on locks in a PostgreSQL table. No operation rejects, except after a bug. */
export class PostgresNode extends SqlNode implements WaitQueue, InboxListener {
  readonly store = 'PostgreSQL';
  readonly handsOver = true;
  override readonly waitQueue = this;
  readonly releaseAndAcquire: NonNullable<LockBackend['releaseAndAcquire']> = this.releaseThenAttempt;
  protected readonly statements: PostgresStatements;
  readonly #inbox: PostgresInbox;
  readonly #channel: string;
  readonly #clock = new ServerClock();
  readonly #timeAt = (_: string, serverUs: number) => this.#clock.monotonicAt(serverUs);
  /** The messages to send at the end of this tick: channel and text. */
  #unsent: [string, string][] = [];
  #listener?: WaitListener;

  protected readonly ddl: string;

  constructor(source: SqlSource<PostgresClient>, settings: SqlSettings, alone?: Standalone) {
    super(source, settings, alone);
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

  protected attempt(request: AcquireRequest, done: AttemptCallback, give?: string): void {
    const { place, turns = 1 } = request;
    if (turns === 1 && !place && give === undefined && this.runner.isAnswered) this.#take(request, done);
    else this.#ask(request, give, done);
  }

  protected prolong({ grant, ttlMs, waiting }: ExtendRequest, done: (answer: Answer<ExtendOutcome>) => void): void {
    const { key, owner } = grant;
    const values = [stored(key), owner, ttlMs, false, waiting?.calls ?? 0];
    this.runner.run(this.statements.extend, key, values, this.reading(extensionOf, done));
  }

  protected move(request: Transfer, done: (answer: Answer<TransferOutcome>) => void): void {
    const { key, from, to, ttlMs, mints, atLeast = false } = request;
    const moved = this.reading((row, sentAt) => transferOf(row, request, sentAt), done);
    this.runner.run(this.statements.transfer, key, [stored(key), from, to, ttlMs, mints, atLeast], moved);
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
    this.release({ key, owner: ticket }, { entry: ticket }, undefined, Infinity);
  }

  /** Ignores the tickets of other processes: the message may be forged. */
  decline(key: string, ticket: string): void {
    const isOwn = ticket.startsWith(`${this.settings.processName}/`);
    if (isOwn) this.release({ key, owner: ticket }, { entry: ticket }, undefined, GRANT_TTL_MS);
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

  seize(key: string, from = ANY_OWNER): Promise<Taken | undefined | Failed> {
    const seized = (row: Row): Taken | undefined => {
      if (!is(row.gives)) return undefined;
      const holder = text(row.holder);
      if (!is(row.is_kept)) this.#sendAtEndOfTick(channelOf(holder), `${holder} ${TAKEN} ${stored(key)}`);
      return { from: [holder] };
    };
    return new Promise((resolve) => this.#turn({ key, give: from }, this.reading(seized, resolve)));
  }

  protected override closed(): void {
    this.#inbox.close();
  }

  /** Called by the inbox for each message. */
  onMessage(text: string): void {
    const { ticket, grant, lock, takenKey } = readMessage(text);
    if (takenKey !== undefined) this.#listener?.onTaken(fromStored(takenKey), ticket);
    // A lease must not begin while the connection cannot extend it.
    else
      this.#listener?.onTurn(
        ticket,
        grant && this.connection.isReady ? new HandOverMessage(ticket, grant, this.#timeAt) : undefined,
        lock && fromStored(lock),
      );
  }

  /** Called by the inbox when listening begins or ends. */
  onListening(): void {
    this.#listener?.onTurn();
  }

  /** Called by the inbox when messages do not arrive. */
  onRefused(): void {
    this.#listener?.onWarning(
      `${this.name} does not deliver notifications to this process, so waiting calls poll instead. ` +
        'Is it a pooler that assigns connections per transaction (PgBouncer)? Give the address of PostgreSQL itself.',
    );
  }

  #ask(request: AcquireRequest, give: string | undefined, done: AttemptCallback): void {
    const { key, owner, ttlMs, place, turns = 1, asker } = request;
    const number = place && this.#clock.at(place.arrivedAt);
    const waiting = { ticket: place?.ticket, number, queues: place !== undefined, calls: place?.calls };
    const answered: Answered = (row, sentAt) => {
      if (row instanceof SqlFault) return done(this.failedBy(row), sentAt);
      this.#learn(row, sentAt);
      done(this.#outcomeOf(row, request, sentAt), sentAt, give === undefined ? undefined : releaseResultOf(row));
    };
    this.#turn({ key, give, owner, ttlMs, turns, ...waiting }, answered, asker);
  }

  /** Tries the short statement for a free lock without waiters. */
  #take(request: AcquireRequest, done: AttemptCallback): void {
    const { key, owner, ttlMs, asker } = request;
    const taken: Answered = (row, sentAt) => {
      if (row instanceof SqlFault) return done(this.failedBy(row), sentAt);
      if (row.token === undefined) return this.#ask(request, undefined, done);
      const token = Number(row.token);
      done({ status: 'acquired', grant: new StoredGrant(request, token, token), sentAt }, sentAt);
    };
    this.runner.run(this.statements.take, key, [stored(key), owner, ttlMs], taken, asker);
  }

  #turn(asked: Turn, done: Answered, wanted?: AcquireRequest['asker']): void {
    const { turn, giveAndTurn } = this.statements;
    const { key, give } = asked;
    const answered: Answered = (row, sentAt) => {
      if (!(row instanceof SqlFault) && typeof row.granted === 'string') {
        const message = [row.granted, row.first_token, row.last_token, row.bound, stored(key)].join(' ');
        this.#sendAtEndOfTick(channelOf(row.granted), message);
      }
      done(row, sentAt);
    };
    this.runner.run(give === undefined ? turn : giveAndTurn, key, turnValues(asked), answered, wanted);
  }

  #outcomeOf(row: Row, request: AcquireRequest, sentAt: number): Answer<AcquireOutcome> {
    const { place } = request;
    if (is(row.is_taken)) {
      const nobodyBefore = this.#clock.monotonicAt(Number(row.bound));
      const grant = new StoredGrant(request, Number(row.first_token), Number(row.last_token), nobodyBefore);
      return { status: 'acquired', grant, sentAt };
    }
    const { latestToken, ...seen } = typeof row.granted === 'string' ? handedOver(row) : heldBy(row);
    if (!place) return { status: 'contended', ...seen, queued: false };
    const wasGone = place.isTaken && !is(row.had_place);
    if (wasGone) this.#inbox.check(); // it missed its turn: it did not listen, or the message was lost
    const tokens = Math.max(Number(row.us ?? 0), latestToken);
    const hint = hintOf(place, sentAt, this.connection.generation, tokens, wasGone);
    return { status: 'contended', ...seen, queued: true, hint };
  }

  #learn({ us }: Row, sentAt: number): void {
    if (us === null || us === undefined) return;
    const receivedAt = monotonic();
    this.#clock.learn(Number(us), receivedAt - (this.settings.now() - sentAt), receivedAt);
  }

  protected giveBack(
    { key, owner, fencingToken = 0, nobodyBefore }: Grant,
    { keepUntil, entry }: ReleaseRequest,
    done: (answer: Answer<ReleaseOutcome>) => void,
  ): void {
    const keptForMs = leftMs(keepUntil);
    if (keptForMs > 0) {
      const values = [stored(key), owner, keptForMs, true, 0];
      this.runner.run(this.statements.keep, key, values, this.reading(releaseOf, done));
      return;
    }
    const giveByTurn = () => {
      const given = this.reading(({ gives }) => releaseOf({ is_done: gives }), done);
      this.#turn({ key, give: owner, ticket: entry }, given);
    };
    const heldUs = (this.#clock.at(monotonic()) ?? Infinity) - fencingToken;
    const isAlone = entry === undefined && nobodyBefore === undefined && heldUs < QUEUE_LIKELY_AFTER_US;
    if (!isAlone || !this.runner.isAnswered) return giveByTurn();
    const given: Answered = (row) => {
      if (row instanceof SqlFault) done(this.failedBy(row));
      else if (row.is_done === undefined) giveByTurn();
      else done({ status: 'released' });
    };
    this.runner.run(this.statements.give, key, [stored(key), owner], given);
  }

  /** Sends a message to a process at the end of this tick, together with others. */
  #sendAtEndOfTick(channel: string | undefined, message: string): void {
    if (channel === undefined) return;
    if (this.#unsent.push([channel, message]) > 1) return;
    this.releasing.begin();
    nextTick(() => {
      const unsent = this.#unsent;
      this.#unsent = [];
      const isOwn = ([to]: [string, string]) => to === this.#channel;
      // A lost message only costs time, because waiting calls poll once a second.
      void this.#notify(unsent.filter((each) => !isOwn(each)))
        .catch(() => {})
        .then(() => this.releasing.end());
      for (const [, text] of unsent.filter(isOwn)) this.onMessage(text);
    });
  }

  /** @throws NodeError when the server has not confirmed the messages */
  async #notify(messages: readonly [string, string][]): Promise<void> {
    const channels = messages.map(([channel]) => channel);
    const texts = messages.map(([, text]) => text);
    const answer = await this.runner.ask(this.statements.notify, [channels, texts]);
    if (answer instanceof SqlFault) throw this.failedBy(answer).causes[0]!;
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
    // The user may lack the right to end the session, which then ends by itself.
    await client.query({ name: 'end_session', text: END_SESSION }, [name]).catch(() => {});
    return false;
  }

  /** Also reads the clock of the server, so that even the first waiting call gets its place in order. */
  protected async look(client: SqlClient): Promise<Seen> {
    const sentAt = this.settings.now();
    const [seen] = await client.query({ name: 'look', text: LOOK }, [this.settings.table]);
    if (seen) this.#learn(seen, sentAt);
    return { table: is(seen?.has_table) ? 'there' : 'missing', readsOnly: is(seen?.reads_only) };
  }
}

/** A session-level advisory lock on the name. Behind a pooler it is not taken, since the pooler would share the session with others. */
const CLAIM_SESSION = `
SELECT (CASE WHEN pg_backend_pid() = $2::int THEN pg_try_advisory_lock(hashtextextended($1::text, 0)) ELSE true END)::int AS is_claimed`;
const END_SESSION = `
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint << 32 | objid::bigint = hashtextextended($1::text, 0)
  AND granted AND pid <> pg_backend_pid()`;

const LOOK = `
SELECT (to_regclass($1::text) IS NOT NULL)::int AS has_table, (extract(epoch FROM clock_timestamp()) * 1000000)::text AS us,
  (pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')::int AS reads_only`;

/** Returns the channel of the process of an owner value; undefined for other values. */
function channelOf(owner: string): string | undefined {
  const [, , random] = owner.split('/');
  return random ? `nest_redis_lock_${Buffer.from(random).toString('hex')}` : undefined;
}

/** Reads the result of the release in the same step. It is unknown while a transaction guards the lock. */
function releaseResultOf(row: Row): ReleaseResult | undefined {
  if (!is(row.gives)) return 'gone';
  return is(row.is_guarded) ? undefined : 'released';
}

/** Describes the holder if the statement has handed the lock over to the first place in the queue. */
function handedOver({ granted, last_token }: Row) {
  return { owner: text(granted), remainingMs: GRANT_TTL_MS, latestToken: Number(last_token) };
}

/** Describes the holder that refuses an attempt, or the transaction that guards the lock. */
function heldBy({ holder, remaining, fence, is_guarded, is_kept }: Row) {
  const remainingMs = Math.max(Number(remaining ?? 0), is(is_guarded) ? GUARDED_FOR_MS : 0);
  return {
    owner: text(holder) || undefined,
    remainingMs,
    isKept: is(is_kept) || undefined,
    latestToken: Number(fence ?? 0),
  };
}
