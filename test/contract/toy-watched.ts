import type { AcquireRequest, Grant, Releasing } from '../../lib/testing/index.js';
import { ToyBackend } from './toy-backend.js';

/** A toy that reports which locks may be free. A test can break its watches, or replace `watch`. */
export class ToyWatched extends ToyBackend {
  /** The events, in order. */
  readonly log: string[] = [];
  readonly #watches = new Set<(heard: string | Error) => void>();

  get watches(): number {
    return this.#watches.size;
  }

  /** Ends all watches with an error, like a store whose connection breaks. */
  break(): void {
    for (const hear of [...this.#watches]) hear(new Error('the connection broke'));
  }

  async *watch(signal: AbortSignal): AsyncGenerator<string | undefined> {
    const heard: (string | Error)[] = [];
    let wake = () => {};
    const hear = (what: string | Error) => {
      heard.push(what);
      wake();
    };
    this.#watches.add(hear);
    this.log.push('watch');
    signal.addEventListener('abort', () => wake());
    try {
      yield undefined;
      while (!signal.aborted) {
        for (const what of heard.splice(0)) {
          if (what instanceof Error) throw what;
          yield what;
        }
        if (heard.length === 0 && !signal.aborted) await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      this.#watches.delete(hear);
      this.log.push('watch ended');
    }
  }

  override async acquire(request: AcquireRequest) {
    this.log.push(`acquire ${request.key}`);
    return super.acquire(request);
  }

  override async release(grant: Grant, how: Releasing) {
    const outcome = await super.release(grant, how);
    this.#tell(grant.key);
    return outcome;
  }

  override async forceRelease(key: string, from?: string) {
    const taken = await super.forceRelease(key, from);
    this.#tell(key);
    return taken;
  }

  async close(): Promise<void> {
    this.log.push('close');
  }

  #tell(key: string): void {
    for (const hear of this.#watches) hear(key);
  }
}
