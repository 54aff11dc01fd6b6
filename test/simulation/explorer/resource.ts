import type { Unstamped } from '../../chaos/history.js';

/** The value that a holder reads, or with `base` writes: base + 1. */
export interface Access {
  readonly turn: string;
  readonly key: string;
  readonly token: number;
  readonly base?: number;
}

/**
 * The resource that the locks protect: counters. A write with a smaller token than an earlier one is late, and refused.
 */
export class Resource {
  readonly #values = new Map<string, number>();
  readonly #highest = new Map<string, number>();

  constructor(private readonly note: (entry: Unstamped) => void) {}

  access({ turn, key, token, base }: Access): { accepted: boolean; value: number } {
    const value = this.#values.get(key) ?? 0;
    const accepted = token >= (this.#highest.get(key) ?? 0);
    if (accepted) this.#highest.set(key, token);
    if (accepted && base !== undefined) this.#values.set(key, base + 1);
    this.note({ type: base === undefined ? 'read' : 'write', turn, key, token, base: base ?? value, accepted });
    return { accepted, value: this.#values.get(key) ?? 0 };
  }
}
