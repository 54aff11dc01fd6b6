import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { killWithParent } from '../../servers/kill-with-parent.js';
import { killProcess } from '../support/kill-process.js';
import type { Journal } from './journal.js';
import type { Resource } from '../simulation/explorer/resource.js';
import type { LockParcel } from './library.js';
import type { Turn } from './liveness.js';
import type { Order, Report, WorkerTerms } from './worker.program.js';

const PROGRAM = fileURLToPath(new URL('worker.program.js', import.meta.url));

/** One worker: a process, and another one after each kill -9. */
export class Worker {
  #child: ChildProcess | undefined;
  #incarnation = 0;
  #healed = false;
  #onPassing?: () => void;
  /** Its turns since the faults were over that got a lock. */
  readonly calmTurns: Turn[] = [];

  constructor(
    private readonly terms: Omit<WorkerTerms, 'incarnation'>,
    private readonly journal: Journal,
    private readonly resource: Resource,
    /** Another worker can adopt a detached lock. */
    private readonly onDetached: (parcel: LockParcel) => void,
  ) {}

  get number(): number {
    return this.terms.worker;
  }

  /** @returns when it runs, or has already ended */
  async start(): Promise<void> {
    const terms: WorkerTerms = { ...this.terms, incarnation: this.#incarnation++ };
    const child = fork(PROGRAM, [JSON.stringify(terms)], { execArgv: [] });
    killWithParent(child);
    this.#child = child;
    child.on('error', () => {}); // it was killed before a message reached it
    child.on('message', (report: Report) => {
      if (report === 'passing') this.#onPassing?.();
      else if (report === 'ready') {
        if (this.#healed) child.send('healed');
      } else if ('token' in report) this.#tell({ turn: report.turn, ...this.resource.access(report) });
      else if ('owner' in report) this.onDetached(report);
      else this.calmTurns.push(report);
    });
    child.once('exit', (code, signal) => {
      this.journal.note({ type: 'exited', process: `${this.number}.${terms.incarnation}`, worker: this.number });
      if (child !== this.#child || (code === 0 && signal === null)) return;
      this.journal.note({ type: 'unhandled', worker: this.number, message: `it ended with ${signal ?? code}` });
    });
    await Promise.race([once(child, 'message'), once(child, 'exit')]);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child) await killProcess(child);
  }

  pause(): void {
    this.#child?.kill('SIGSTOP');
  }

  resume(): void {
    this.#child?.kill('SIGCONT');
  }

  /**
   * Lets many turns ask for one lock at once.
   * @returns whether they pass it on to each other, within the time limit
   */
  async passesOn(limitMs: number): Promise<boolean> {
    const passing = new Promise<boolean>((resolve) => {
      this.#onPassing = () => resolve(true);
      setTimeout(() => resolve(false), limitMs);
    });
    this.#tell('cohort');
    return passing;
  }

  /** The same, but meanwhile the worker takes the lock from its holder. */
  forceRelease(): void {
    this.#tell('force-release');
  }

  adopt(parcel: LockParcel): void {
    this.#tell({ adopt: parcel });
  }

  healed(): void {
    this.#healed = true;
    this.#tell('healed');
  }

  /** Lets it finish its turns and close, within a time limit. */
  async finish(limitMs: number): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    const timer = setTimeout(() => {
      this.journal.note({ type: 'hung', worker: this.number });
      void this.kill();
    }, limitMs);
    this.#tell('stop');
    await exited;
    clearTimeout(timer);
  }

  #tell(order: Order): void {
    if (this.#child?.connected) this.#child.send(order);
  }
}
