/** How many labels are made of keys: a label that is new after so many is that of all others. */
const MAX_LABELS = 100;
const OTHERS = '_other';

/**
 * Labels for calls that have none: the first part of the key, up to a colon. Keys are unbounded, labels must not be, as whoever
 * measures keeps a series for each.
 */
export class Labels {
  readonly #known = new Set<string>();

  of(key: string): string {
    const end = key.indexOf(':');
    const label = end === -1 ? key : key.slice(0, end);
    if (this.#known.has(label)) return label;
    if (this.#known.size >= MAX_LABELS) return OTHERS;
    this.#known.add(label);
    return label;
  }
}
