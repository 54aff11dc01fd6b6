import { randomOf } from '../support/random.js';
import { Heap } from './heap.js';

interface Event {
  readonly at: number;
  /** Events of the same time happen in the order in which they were planned. */
  readonly order: number;
  readonly run: () => void;
}

/**
 * Decides what happens next, in simulated time. Everything that happens is a step: an event, or one callback of the
 * turn of a process. Between two steps Node.js runs what nextTick has queued, and microtasks, if each step is taken in
 * its own callback: see `Simulation`.
 */
export class Scheduler {
  /** Called with each line of the trace. */
  onTrace?: (line: string) => void;
  #now = 0;
  #steps = 0;
  #planned = 0;
  readonly #events = new Heap<Event>((a, b) => a.at < b.at || (a.at === b.at && a.order < b.order));
  /** The process whose turn it is: the turn ends before anything else happens. */
  #turn?: Iterator<void>;
  readonly #hash = new TraceHash();

  /** @param seed the same seed gives the same numbers */
  constructor(readonly seed: string) {}

  /** In microseconds since the beginning. */
  get now(): number {
    return this.#now;
  }

  /** The number of steps that were taken. */
  get steps(): number {
    return this.#steps;
  }

  /** The time of the next step; undefined: nothing will ever happen, unless something new is planned. */
  get nextAt(): number | undefined {
    return this.#turn ? this.#now : this.#events.first?.at;
  }

  /** Numbers from 0 to below 1, by seed and name: numbers of one name do not depend on how often others are drawn. */
  stream(name: string): () => number {
    return randomOf(hashOf(`${this.seed}/${name}`));
  }

  at(us: number, run: () => void): void {
    this.#events.push({ at: Math.max(us, this.#now), order: this.#planned++, run });
  }

  after(us: number, run: () => void): void {
    this.at(this.#now + Math.round(us), run);
  }

  /** Begins the turn of a process: each step takes one callback of it. */
  begin(turn: Iterator<void>): void {
    this.#turn = turn;
  }

  /** @returns whether there was anything to do */
  step(): boolean {
    this.#steps++;
    if (this.#turn) {
      // Its end is a step, too: only then is the time of the next event known.
      if (this.#turn.next().done) this.#turn = undefined;
      return true;
    }
    const event = this.#events.pop();
    if (!event) return false;
    this.#now = event.at;
    event.run();
    return true;
  }

  /** Records what has happened: two runs with the same records have the same hash. */
  trace(line: string): void {
    const dated = `${this.#now} ${line}\n`;
    this.#hash.add(dated);
    this.onTrace?.(dated);
  }

  get hash(): string {
    return this.#hash.text;
  }
}

/** FNV-1a: fast, and good enough to distinguish traces. */
class TraceHash {
  #low = 0x811c9dc5;
  #high = 0x1b873593;

  add(text: string): void {
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      this.#low = Math.imul(this.#low ^ code, 0x01000193);
      this.#high = Math.imul(this.#high ^ code, 0x5bd1e995) ^ (this.#high >>> 15);
    }
  }

  get text(): string {
    return [this.#high, this.#low].map((half) => (half >>> 0).toString(16).padStart(8, '0')).join('');
  }
}

function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash;
}
