import type { LockError } from '../../api/errors.js';
import { NodeError } from '../../api/errors.js';
import { outsideOfCalls } from '../../core/time/event-loop.js';
import { inTime } from '../../core/time/time-limit.js';
import type { NodeConnection } from '../node/server.backend.js';
import { sqlError } from './advice.js';
import type { SqlClient, SqlSource } from './sql-client.js';
import { faultOf } from './sql-fault.js';

/** The first pause before the next attempt to connect, and the longest, in milliseconds. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [50, 2_000];
/** A connection that has lasted for so long is made anew at once when it breaks, in milliseconds. */
const RENEW_EVERY_MS = 1_000;

/** Why a database that answers must not be used as it is: no use to wait. */
export interface NotAdmitted {
  readonly problem: NodeError;
  /** The error of an application that starts. */
  readonly error: LockError;
}

/** The connection that locks use, which is made anew whenever it breaks, until it is closed. */
export class SqlConnection implements NodeConnection {
  #client?: SqlClient;
  #isConnecting = false;
  #isClosed = false;
  #failures = 0;
  /** How often in succession it broke as soon as it was made. */
  #breaks = 0;
  #readyAt = 0;
  /** Since when it is not ready, although it should be. */
  #downSince?: number;
  #problem: NodeError;
  #notAdmitted?: NotAdmitted;
  #retry?: NodeJS.Timeout;
  readonly #waiting = new Set<() => void>();
  /** Called each time that the connection was made, before anything that waited for it is sent. */
  onReady?: () => void;

  /**
   * @param commandTimeoutMs how long an attempt to connect may take, and how long without a connection until the server counts as down
   * @param admit looks at a new connection before it is used. @returns why it must not be. @throws what the driver throws
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

  /** The problem while it is not ready. One error object until it changes, as every call asks for it meanwhile. */
  get problem(): NodeError {
    return this.#problem;
  }

  /** Why it must not be used as it is, if that is so. */
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

  /** Ends the connection, which does not answer or leads to the wrong server, and makes another. @param code what the database calls it */
  drop(problem: string, code?: string): void {
    const client = this.#client;
    if (!client) return;
    this.#lost(client, sqlError(this.name, problem, code));
    client.close();
  }

  /** Makes the connection anew, as its server only reads: its address may lead to the primary by now. */
  leaveReplica(code: string): void {
    if (this.isReady && performance.now() - this.#readyAt >= RENEW_EVERY_MS) this.drop('it only reads', code);
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

  /** At once after a break; after pauses that grow while it cannot be made, or does not last. */
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
