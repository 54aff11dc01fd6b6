import { adviceFor, LockOptionsError, LockUnavailableError, NodeError, type LockError } from '../../../api/errors.js';
import type {
  AcquireRequest,
  ExtendRequest,
  Grant,
  GuardStatement,
  Holding,
  ListRequest,
  Place,
  Releasing,
  WaitListener,
} from '../../../core/backend/lock-backend.js';
import { matcherOf } from '../../../core/backend/matcher.js';
import { ReleaseRetry } from '../../../core/backend/release-retry.js';
import { PING_KEY } from '../../../core/backend/report.js';
import { leftMs, monotonic } from '../../../core/time/clock.js';
import { nextTick } from '../../../core/time/event-loop.js';
import { InFlight } from '../../../core/time/in-flight.js';
import { ServerClock } from '../../../core/time/server-clock.js';
import { inTime } from '../../../core/time/time-limit.js';
import type { Fault, NodeExtension, NodeRelease, NodeScan, NodeSeizure, NodeView, Vote } from '../../node/answers.js';
import { standsMs, ToldHandOver } from '../../node/grants.js';
import type { LockNode } from '../../node/lock-node.js';
import { GRANT_TTL_MS, readMessage, TAKEN } from '../../node/messages.js';
import { sqlError } from '../advice.js';
import { EVERY_MS, Janitor, JANITOR_KEY, type SweptPage } from '../janitor.js';
import type { SqlClient, SqlSource } from '../sql-client.js';
import { SqlConnection, type Refusal } from '../sql-connection.js';
import { faultOf, SqlFault } from '../sql-fault.js';
import { StatementRunner } from '../statement-runner.js';
import type { Row, Statement } from '../statement.js';
import { fromStored, stored } from '../stored-key.js';
import { PostgresInbox, type PostgresInboxListener } from './postgres-inbox.js';
import { ddl, guardOf, postgresStatements, type PostgresStatements } from './statements.js';

/** How often an attempt is made that has met a row which another process was just inserting, or deleting. */
const MOST_ATTEMPTS = 4;
/** After this time a process asks again for a lock that only a transaction of its last holder's work keeps, in milliseconds. */
const GUARDED_FOR_MS = 100;
/** Others may wait for a lock that was held for longer than this, in microseconds: it is given back by the statement that hands it over. */
const AWAITED_AFTER_US = 10_000;
/** Whoever holds the lock gives it back. No owner value is like it. */
const WHOEVER = '*';

export interface PostgresSettings {
  /** Quoted. */
  readonly table: string;
  readonly createTable: boolean;
  /** How long one statement may take, in milliseconds. */
  readonly commandTimeoutMs: number;
  /** For how long a row is kept that nobody uses, in milliseconds; undefined: for ever. */
  readonly keepMs?: number;
  /** The name of this process, which its channel is named after. */
  readonly processName: string;
  /** The clock of the service, in milliseconds. */
  readonly now: () => number;
}

/** The release of a lock, or of a ticket's place in its queue. */
interface PendingRelease extends Releasing {
  readonly key: string;
  readonly owner: string;
  readonly isPlace?: boolean;
  /** Nobody waited for it when it was granted, a moment ago. */
  readonly isAlone?: boolean;
}

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
}

/** The operations on locks in a table of PostgreSQL. None of them rejects, except for a bug. */
export class PostgresNode implements LockNode, PostgresInboxListener {
  readonly store = 'PostgreSQL';
  readonly handsOver = true;
  readonly connection: SqlConnection;
  readonly #runner: StatementRunner;
  readonly #statements: PostgresStatements;
  readonly #inbox: PostgresInbox;
  readonly #channel: string;
  readonly #clock = new ServerClock();
  readonly #timeAt = (key: string, serverUs: number) => this.timeAt(key, serverUs);
  readonly #retry: ReleaseRetry<PendingRelease>;
  /** Releases in flight, and the notifications of them. */
  readonly #releasing = new InFlight();
  /** What other processes are told at the end of this tick: channel and message. */
  #untold: [string, string][] = [];
  #listener?: WaitListener;
  #janitor?: Janitor;

  constructor(
    source: SqlSource,
    private readonly settings: PostgresSettings,
  ) {
    const { commandTimeoutMs, keepMs, now, processName, table } = settings;
    this.#statements = postgresStatements(table);
    this.connection = new SqlConnection(source, commandTimeoutMs, (client) => this.#admit(client));
    this.#runner = new StatementRunner(this.connection, commandTimeoutMs, now);
    this.#retry = new ReleaseRetry(
      (item, done) => this.#giveBack(item, ({ status }) => done(status !== 'fault')),
      () => this.connection.isReady,
    );
    this.#channel = channelOf(`${processName}/`)!;
    this.#inbox = new PostgresInbox(this.#channel, source, (text) => this.#notify([[this.#channel, text]]), this);
    this.connection.onReady = () => this.#retry.hurry();
    if (keepMs !== undefined)
      this.#janitor = new Janitor(
        () => this.#takeSweep(),
        (behind) => this.#sweep(behind, keepMs),
      );
  }

  get name(): string {
    return this.connection.name;
  }

  acquire(request: AcquireRequest, done: (vote: Vote, sentAt: number) => void, give?: string): void {
    this.#attempt(request, give, done, 1);
  }

  extend({ grant, ttlMs }: ExtendRequest, _: 'keep', done: (extension: NodeExtension, sentAt: number) => void): void {
    const { key, owner } = grant;
    const read = (row: Row | SqlFault): NodeExtension => {
      if (row instanceof SqlFault) return this.#faultOf(row);
      return { status: is(row.is_done) ? 'extended' : is(row.is_held) ? 'foreign' : 'absent' };
    };
    this.#runner.run(this.#statements.extend, key, [stored(key), owner, ttlMs, false], read, done);
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
    this.#release({ key, owner, keepUntil, isAlone }, forMs, done);
  }

  guard(grants: readonly Grant[]): GuardStatement {
    return {
      text: guardOf(this.settings.table, grants.length),
      values: grants.flatMap(({ key, owner, fencingToken }) => [stored(key), owner, fencingToken ?? 0]),
    };
  }

  leave(key: string, { ticket }: Place): void {
    this.#release({ key, owner: ticket, isPlace: true }, Infinity);
  }

  timeAt(_: string, serverUs: number): number | undefined {
    return this.#clock.monotonicAt(serverUs);
  }

  clockErrorMs(): number | undefined {
    const { errorUs } = this.#clock;
    return errorUs === undefined ? undefined : errorUs / 1_000;
  }

  isListening(): boolean {
    return this.#inbox.isOpen;
  }

  listen(_: string, listener: WaitListener): void {
    this.#listener = listener;
    this.#inbox.open();
  }

  checkListening(): void {
    this.#inbox.check();
  }

  async inspect(key: string): Promise<NodeView> {
    const row = await this.#runner.ask(this.#statements.inspect, [stored(key)], key);
    return row instanceof SqlFault ? this.#faultOf(row) : { status: 'seen', holding: holdingOf(row) };
  }

  /** Reads the table in pages, by the order of the keys. */
  async scan({ match, limit, budgetMs }: ListRequest): Promise<NodeScan> {
    const fits = matcherOf(match);
    const [start = ''] = match.split('*');
    const from = stored(start);
    const endsAt = monotonic() + budgetMs;
    const keys: string[] = [];
    let [scanned, last] = [0, ''];
    for (;;) {
      const page = await this.#runner.ask(this.#statements.scan, [from, last]);
      if (page instanceof SqlFault) return { status: 'failed', errors: [this.#faultOf(page).error] };
      const held = page.held === null ? [] : (JSON.parse(text(page.held)) as string[]);
      keys.push(...held.map(fromStored).filter((key) => !key.startsWith('}') && fits(key)));
      scanned += Number(page.scanned);
      const isComplete = page.last === null || !text(page.last).startsWith(from);
      if (isComplete || keys.length > limit || monotonic() >= endsAt)
        return { status: 'scanned', keys, isComplete, scanned };
      last = text(page.last);
    }
  }

  async forceRelease(key: string, from = WHOEVER): Promise<NodeSeizure> {
    return new Promise((resolve) => {
      this.#turn({ key, give: from }, (row) => {
        if (row instanceof SqlFault) return resolve(this.#faultOf(row));
        if (is(row.is_guarded)) return resolve(this.#guarded());
        if (!is(row.gives)) return resolve({ status: 'absent' });
        const holder = text(row.holder);
        if (!is(row.is_kept)) this.#tell(channelOf(holder), `${holder} ${TAKEN} ${stored(key)}`);
        resolve({ status: 'taken', from: holder });
      });
    });
  }

  /** Runs a statement that is about no lock. @returns its row, or why there is none */
  async ask(statement: Statement, values: readonly unknown[]): Promise<Row | NodeError> {
    const row = await this.#runner.ask(statement, values);
    return row instanceof SqlFault ? this.#faultOf(row).error : row;
  }

  async ping(): Promise<NodeError | undefined> {
    if (!this.connection.isReady) return this.connection.problem;
    const { commandTimeoutMs } = this.settings;
    const answer = this.inspect(PING_KEY).then((view) => (view.status === 'fault' ? view.error : undefined));
    return inTime(answer, commandTimeoutMs, () => sqlError(this.name, `no answer within ${commandTimeoutMs} ms`));
  }

  problem(silence: string): NodeError | undefined {
    if (!this.connection.isReady) return this.connection.problem;
    return this.#runner.isAnswered ? undefined : new NodeError(this.name, silence);
  }

  unreachable(problem: NodeError, timeoutMs: number): LockError {
    const { refusal } = this.connection;
    if (refusal) return refusal.error;
    const message =
      problem.advice === undefined
        ? `PostgreSQL cannot be reached (waited ${timeoutMs} ms): ${problem.message}. Start it, correct the address or the ` +
          'credentials, or set lazyConnect: true to start without it.'
        : `PostgreSQL cannot be used: ${problem.message}. ${adviceFor([problem])}`;
    return new LockUnavailableError(message, undefined, [problem]);
  }

  async close(): Promise<void> {
    this.#janitor?.close();
    await this.#releasing.settled();
    await this.#retry.close();
    await this.#releasing.settled(); // the notifications
    this.#inbox.close();
    this.connection.close();
  }

  /** Called by the inbox. */
  onMessage(text: string): void {
    const { ticket, grant, takenKey } = readMessage(text);
    if (takenKey !== undefined) this.#listener?.onTaken(fromStored(takenKey), ticket);
    // None is begun with that cannot be extended now.
    else
      this.#listener?.onTurn(
        ticket,
        grant && this.connection.isReady ? new ToldHandOver(ticket, grant, this.#timeAt) : undefined,
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

  #attempt(
    request: AcquireRequest,
    give: string | undefined,
    done: (vote: Vote, sentAt: number) => void,
    attempt: number,
  ): void {
    const { key, owner, ttlMs, place, turns = 1, asker } = request;
    if (attempt === 1 && turns === 1 && !place && give === undefined && this.#runner.isAnswered) {
      this.#take(request, done);
      return;
    }
    const turn: Turn = { key, give, owner, ttlMs, turns };
    if (place) {
      turn.ticket = place.ticket;
      turn.number = this.#clock.at(place.arrivedAt);
      turn.queues = true;
    }
    const answered = (row: Row | SqlFault, sentAt: number) => {
      if (row instanceof SqlFault) return done(this.#faultOf(row), sentAt);
      if (row.key === undefined && attempt < MOST_ATTEMPTS) return this.#attempt(request, give, done, attempt + 1);
      this.#learn(row, sentAt);
      done(this.#voteOf(row, request, give), sentAt);
    };
    this.#turn(turn, answered, asker);
  }

  /** Tries to take a lock alone, as if it were free and nobody waited for it. */
  #take(request: AcquireRequest, done: (vote: Vote, sentAt: number) => void): void {
    const { key, owner, ttlMs, asker } = request;
    const taken = (row: Row | SqlFault, sentAt: number) => {
      if (row instanceof SqlFault) done(this.#faultOf(row), sentAt);
      else if (row.token === undefined) this.#attempt(request, undefined, done, 2);
      else done({ status: 'granted', fencingToken: Number(row.token) }, sentAt);
    };
    this.#runner.run(this.#statements.take, key, [stored(key), owner, ttlMs], asItIs, taken, asker);
  }

  #turn(
    { key, give, owner, ticket, ttlMs, turns, number, queues = false }: Turn,
    done: (row: Row | SqlFault, sentAt: number) => void,
    wanted?: AcquireRequest['asker'],
  ): void {
    const { turn, giveAndTurn } = this.#statements;
    const values = [
      stored(key),
      give ?? null,
      owner ?? null,
      ticket ?? null,
      ttlMs ?? 0,
      turns ?? 1,
      number ?? null,
      queues,
    ];
    const read = (row: Row | SqlFault) => {
      if (!(row instanceof SqlFault) && typeof row.granted === 'string') {
        const message = [row.granted, row.first_token, row.last_token, row.bound].join(' ');
        this.#tell(channelOf(row.granted), message);
      }
      return row;
    };
    this.#runner.run(give === undefined ? turn : giveAndTurn, key, values, read, done, wanted);
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

  #release(item: PendingRelease, forMs: number, done?: (release: NodeRelease) => void): void {
    this.#releasing.begin();
    this.#giveBack(item, (release) => {
      this.#releasing.end();
      if (release.status === 'fault') this.#retry.add(item, forMs);
      done?.(release);
    });
  }

  #giveBack({ key, owner, isAlone, isPlace, keepUntil }: PendingRelease, done: (release: NodeRelease) => void): void {
    const keptForMs = leftMs(keepUntil);
    if (keptForMs > 0) {
      const read = (row: Row | SqlFault): NodeRelease =>
        row instanceof SqlFault ? this.#faultOf(row) : { status: is(row.is_done) ? 'released' : 'gone' };
      this.#runner.run(this.#statements.keep, key, [stored(key), owner, keptForMs, true], read, done);
      return;
    }
    const giveOn = () =>
      this.#turn({ key, give: owner, ticket: isPlace ? owner : undefined }, (row) => {
        if (row instanceof SqlFault) done(this.#faultOf(row));
        else if (is(row.is_guarded)) done(this.#guarded());
        else done({ status: is(row.gives) ? 'released' : 'gone' });
      });
    if (!isAlone || !this.#runner.isAnswered) return giveOn();
    const given = (row: Row | SqlFault) => {
      if (row instanceof SqlFault) done(this.#faultOf(row));
      else if (row.is_done === undefined) giveOn();
      else done({ status: 'released' });
    };
    this.#runner.run(this.#statements.give, key, [stored(key), owner], asItIs, given);
  }

  /** A transaction that guards the lock has not ended: nobody takes it over before. */
  #guarded(): Fault {
    const error = new NodeError(
      this.name,
      'a transaction that guards the lock is still open',
      'Release the lock after the transaction has ended. One whose client is gone ends with its session.',
    );
    return { status: 'fault', error, mayHaveRun: false, disconnected: false };
  }

  #faultOf({ code, problem, mayHaveRun, disconnected }: SqlFault): Fault {
    // The fault of a statement that was not sent says only that; the connection knows why.
    const isDown = !mayHaveRun && !this.connection.isReady;
    const error = isDown ? this.connection.problem : sqlError(this.name, problem, code);
    if (code === '25006') this.connection.leaveReplica(code);
    return { status: 'fault', error, mayHaveRun, disconnected };
  }

  /** Tells a process something: all that comes up in one tick together. */
  #tell(channel: string | undefined, message: string): void {
    if (channel === undefined) return;
    if (this.#untold.push([channel, message]) > 1) return;
    this.#releasing.begin();
    nextTick(() => {
      const untold = this.#untold;
      this.#untold = [];
      const isOwn = ([to]: [string, string]) => to === this.#channel;
      // A message that is lost costs time only: whoever waits asks each second.
      void this.#notify(untold.filter((each) => !isOwn(each)))
        .catch(() => {})
        .then(() => this.#releasing.end());
      for (const [, text] of untold.filter(isOwn)) this.onMessage(text);
    });
  }

  /** @throws NodeError when it is not known to have been sent */
  async #notify(messages: readonly [string, string][]): Promise<void> {
    const channels = messages.map(([channel]) => channel);
    const texts = messages.map(([, text]) => text);
    const answer = await this.#runner.ask(this.#statements.notify, [channels, texts]);
    if (answer instanceof SqlFault) throw this.#faultOf(answer).error;
  }

  #takeSweep(): Promise<boolean> {
    const owner = `${this.settings.processName}/janitor`;
    return new Promise((resolve) => {
      this.#turn({ key: JANITOR_KEY, owner, ttlMs: EVERY_MS }, (row) =>
        resolve(!(row instanceof SqlFault) && is(row.is_taken)),
      );
    });
  }

  /** @throws NodeError */
  async #sweep(behind: string, keepMs: number): Promise<SweptPage> {
    const page = await this.#runner.ask(this.#statements.sweep, [behind, keepMs]);
    if (page instanceof SqlFault) throw this.#faultOf(page).error;
    return { last: page.last === null ? undefined : text(page.last) };
  }

  /** Looks at the database behind a new connection: also at its clock, so that even the first call that waits has its place in order. */
  async #admit(client: SqlClient): Promise<Refusal | undefined> {
    const { createTable, now, table } = this.settings;
    const look = { name: 'look', text: LOOK };
    const sentAt = now();
    const [seen] = await client.query(look, [table]);
    if (is(seen?.reads_only)) throw new ReadOnly();
    if (seen) this.#learn(seen, sentAt);
    if (is(seen?.has_table)) return undefined;
    const problem = sqlError(this.name, `it has no table ${table}`, '42P01');
    const create = ddl(table);
    const asOneLine = create.replaceAll(/ *--.*/g, '').replaceAll(/\s+/g, ' '); // as messages of errors are
    if (!createTable) {
      const error = new LockOptionsError(
        `${this.name} has no table ${table} for locks. Create it in a migration, or set createTable: true for tests and first steps: ${asOneLine};`,
      );
      return { problem, error };
    }
    try {
      await client.query({ name: 'ddl', text: create }, []);
    } catch (error) {
      // Another process creates it in this moment.
      const [again] = await client.query(look, [table]);
      if (is(again?.has_table)) return undefined;
      const { problem: reason } = faultOf(error, false);
      return {
        problem,
        error: new LockOptionsError(
          `The table ${table} for locks cannot be created in ${this.name}: ${reason}. Create it in a migration: ${asOneLine};`,
        ),
      };
    }
    return undefined;
  }
}

const LOOK = `
SELECT (to_regclass($1::text) IS NOT NULL)::int AS has_table, (extract(epoch FROM clock_timestamp()) * 1000000)::float8 AS us,
  (pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')::int AS reads_only`;

/** The server is a replica, or refuses to write. */
class ReadOnly extends Error {
  readonly code = '25006';

  constructor() {
    super('it only reads');
  }
}

function asItIs(row: Row | SqlFault): Row | SqlFault {
  return row;
}

function text(cell: unknown): string {
  return cell as string;
}

function is(flag: unknown): boolean {
  return Number(flag) === 1;
}

/** The channel of the process that an owner value belongs to; undefined for what is none. */
function channelOf(owner: string): string | undefined {
  const [, , random] = owner.split('/');
  return random ? `nest_redis_lock_${Buffer.from(random).toString('hex')}` : undefined;
}

function holdingOf({ holder, fence, is_kept, remaining, held_for, waiting }: Row): Holding | undefined {
  if (holder === null || holder === undefined) return undefined;
  return {
    holders: [
      {
        owner: text(holder),
        remainingMs: Number(remaining),
        fencingToken: Number(fence),
        heldForMs: Math.max(0, Math.floor(Number(held_for))),
        isKept: is(is_kept) || undefined,
      },
    ],
    waiting: typeof waiting === 'string' ? waiting.split('\n') : undefined,
  };
}
