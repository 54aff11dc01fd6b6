import { splitScope } from './scope.js';

/** How many labels are made of keys: a label that is new after so many is that of all others. */
const MAX_LABELS = 100;
const OTHERS = '_other';
const WITHOUT_FIRST_PART = '_key';

/**
 * Labels for calls that have none: the first part of the key, before its first colon, without its scope. A key without one may be data as a whole, an
 * address perhaps, which whoever measures must not get: all of these share a label. Keys are unbounded, labels must not be, as
 * whoever measures keeps a series for each. Labels that are known without a key (the option, `@Locked`, elections) do not come here,
 * so none is left out for those of keys.
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
