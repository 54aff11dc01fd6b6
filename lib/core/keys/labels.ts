import { splitScope } from './scope.js';

/** Maximum number of labels that are made from keys. Later keys share one label. */
const MAX_LABELS = 100;
const OTHERS = '_other';
const WITHOUT_FIRST_PART = '_key';

/**
 * Makes the labels of calls that have none: the first part of the key, before its first colon, without its scope. All keys without a colon share
 * one label: such a key may be personal data, which metrics must not get. The number of labels is bounded, as metrics keep a series for each
 * label. Labels that do not come from a key (the option, `@Locked`, elections) do not count.
 */
export class Labels {
  readonly #known = new Set<string>();

  of(key: string): string {
    const { rest } = splitScope(key);
    const end = rest.indexOf(':');
    if (end < 1) return WITHOUT_FIRST_PART;
    const label = rest.slice(0, end);
    if (this.#known.has(label)) return label;
    if (this.#known.size >= MAX_LABELS) return OTHERS;
    this.#known.add(label);
    return label;
  }
}
