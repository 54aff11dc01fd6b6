import type { Lease } from './lease.js';

/** The leases of one line. Most lines have at most one, which needs no list. */
export class LineLeases {
  #first?: Lease;
  #others?: Set<Lease>;

  /** One of them. */
  get first(): Lease | undefined {
    return this.#first;
  }

  /** The latest one. */
  get last(): Lease | undefined {
    let last = this.#first;
    if (this.#others) for (const lease of this.#others) last = lease;
    return last;
  }

  get all(): Lease[] {
    return this.#first ? [this.#first, ...(this.#others ?? [])] : [];
  }

  add(lease: Lease): void {
    if (this.#first) (this.#others ??= new Set()).add(lease);
    else this.#first = lease;
  }

  /** @returns false when the line does not have it */
  remove(lease: Lease): boolean {
    if (this.#first !== lease) return this.#others?.delete(lease) ?? false;
    [this.#first] = this.#others ?? [];
    if (this.#first) this.#others!.delete(this.#first);
    return true;
  }

  /** The lease whose grant has this owner value. */
  find(owner: string): Lease | undefined {
    if (this.#first?.grant.owner === owner) return this.#first;
    if (this.#others) for (const lease of this.#others) if (lease.grant.owner === owner) return lease;
    return undefined;
  }
}
