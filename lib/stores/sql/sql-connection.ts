import type { LockError } from '../../api/errors.js';
import { NodeError } from '../../api/errors.js';
import { outsideOfCalls } from '../../core/time/event-loop.js';
import { inTime } from '../../core/time/time-limit.js';
import type { NodeConnection } from '../node/server.backend.js';
import { sqlError } from './advice.js';
import type { SqlClient, SqlSource } from './sql-client.js';
import { faultOf } from './sql-fault.js';

/** The first and the longest pause between attempts to connect, in milliseconds. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [50, 2_000];
/** If a connection has lasted this long, in milliseconds, the library reconnects at once when it breaks. */
const RENEW_EVERY_MS = 1_000;

/** The reason why a database must not be used in its current state. Waiting does not help. */
export interface NotAdmitted {
  readonly problem: NodeError;
  /** The error for the start of the application. */
  readonly error: LockError;
}

/** The connection that locks use. It reconnects after each break until it is closed. */
export class SqlConnection implements NodeConnection {
  #client?: SqlClient;
  #isConnecting = false;
  #isClosed = false;
  #failures = 0;
  /** The number of consecutive connections that broke soon after they opened. */
  #breaks = 0;
  #readyAt = 0;
  /** When it ceased to be ready, if it should be ready. */
  #downSince?: number;
  #problem: NodeError;
  #notAdmitted?: NotAdmitted;
  #retry?: NodeJS.Timeout;
  readonly #waiting = new Set<() => void>();
  /** Called after each connection, before waiting statements are sent. */
  onReady?: () => void;

  /**
   * @param commandTimeoutMs the time limit to connect, and the time without a connection after which the server counts as down
   * @param admit checks a new connection. @returns why it must not be used; undefined if it may @throws the error of the driver
   */
  constructor(
    private readonly source: SqlSource,
    private readonly commandTimeoutMs: number,
    private readonly admit: (client: SqlClient) => Promise<NotAdmitted | undefined>,
  ) {
    this.#problem = new NodeError(source.name, 'not connected');
  }

  get name(): string {
    return this.source.name;
  }

  get isReady(): boolean {
    return this.#client !== undefined;
  }

  get generation(): unknown {
    return this.#client;
  }

  /** The client, while the connection is ready. */
  get client(): SqlClient | undefined {
    return this.#client;
  }

  get isKnownDown(): boolean {
    if (this.isReady) return false;
    if (this.#isClosed || this.#failures > 0) return true;
    return this.#downSince !== undefined && performance.now() - this.#downSince >= this.commandTimeoutMs;
  }

  /** The problem while it is not ready. The error object is reused until the problem changes, because every call reads it. */
  get problem(): NodeError {
    return this.#problem;
  }

  /** The reason why the database must not be used, if there is one. */
  get notAdmitted(): NotAdmitted | undefined {
    return this.#notAdmitted;
  }

  async ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined> {
    if (this.isReady) return undefined;
    this.#downSince ??= performance.now();
    if (!this.#isConnecting && !this.#retry) this.#connect();
    const isHopeless = () => this.#isClosed || (when === 'start' ? this.#notAdmitted !== undefined : this.isKnownDown);
    const endsAt = performance.now() + timeoutMs;
    while (!this.isReady && !isHopeless() && performance.now() < endsAt) await this.#change(endsAt - performance.now());
    return this.isReady ? undefined : this.#problem;
  }

  /** Replaces a connection that does not answer or leads to the wrong server. @param code the code of the database's error */
  drop(problem: string, code?: string): void {
    const client = this.#client;
    if (!client) return;
    this.#lost(client, sqlError(this.name, problem, code));
    client.close();
  }

  /** Reconnects because the server is read-only: its address may lead to the primary by now. */
  leaveReplica(code: string): void {
    if (this.isReady && performance.now() - this.#readyAt >= RENEW_EVERY_MS) this.drop('it is read-only', code);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    this.onReady = undefined;
    const client = this.#client;
    this.#client = undefined;
    client?.close();
    this.#wake();
  }

  #connect(): void {
    this.#isConnecting = true;
    clearTimeout(this.#retry);
    this.#retry = undefined;
    void outsideOfCalls(() => this.#attempt());
  }

  /** Never rejects. */
  async #attempt(): Promise<void> {
    let client: SqlClient | undefined;
    let isEnded = false;
    let isLate = false;
    let notAdmitted: NotAdmitted | undefined;
    const opening = this.source.connect((cause) => {
      isEnded = true;
      if (client && this.#client === client)
        this.#lost(client, this.#errorOf(cause ?? new Error('the connection was closed')));
    });
    opening.then((opened) => isLate && opened.close()).catch(() => {});
    try {
      const limitMs = Math.max(this.commandTimeoutMs, 1_000);
      const late = () => {
        isLate = true;
        throw new Error(`no answer within ${limitMs} ms`);
      };
      client = await inTime(opening, limitMs, late);
      notAdmitted = await inTime(this.admit(client), limitMs, late);
      if (notAdmitted) throw notAdmitted.error;
      if (isEnded || this.#isClosed) throw new Error('the connection was closed');
      this.#isConnecting = false;
      this.#failures = 0;
      this.#notAdmitted = this.#downSince = undefined;
      this.#readyAt = performance.now();
      this.#client = client;
      this.onReady?.();
    } catch (error) {
      client?.close();
      this.#isConnecting = false;
      this.#failures++;
      this.#notAdmitted = notAdmitted;
      this.#problem = notAdmitted?.problem ?? this.#errorOf(error);
      this.#connectLater();
    }
    this.#wake();
  }

  #lost(client: SqlClient, problem: NodeError): void {
    if (this.#client !== client) return;
    this.#client = undefined;
    this.#downSince = performance.now();
    this.#breaks = this.#downSince - this.#readyAt < RENEW_EVERY_MS ? this.#breaks + 1 : 0;
    this.#problem = problem;
    this.#connectLater();
  }

  /** Reconnects at once after a break. The pauses grow while connections fail or do not last. */
  #connectLater(): void {
    if (this.#isClosed || this.#isConnecting || this.#retry) return;
    const tries = this.#failures + this.#breaks;
    const pauseMs = tries === 0 ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (tries - 1));
    this.#retry = outsideOfCalls(() => setTimeout(() => this.#connect(), pauseMs * (0.75 + Math.random() / 2))).unref();
  }

  #errorOf(error: unknown): NodeError {
    const { problem, code } = faultOf(error, true);
    if (this.#problem.problem === `not connected: ${problem}`) return this.#problem;
    return sqlError(this.name, `not connected: ${problem}`, code);
  }

  #wake(): void {
    for (const waiter of this.#waiting) waiter();
  }

  #change(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, Math.ceil(timeoutMs));
      this.#waiting.add(done);
    });
  }
}
