import type { ListOptions } from '../../api/options.js';
import { checked, count, milliseconds, refuseUnknown, unfit, type Check } from './checks.js';

const DEFAULTS = { match: '*', limit: 500, budgetMs: 1_000 } as const satisfies Required<ListOptions>;

/** As long as a key may be. */
const MAX_MATCH_BYTES = 1024;

const LIST_CHECKS: Readonly<Record<keyof ListOptions, Check>> = {
  match: (name, value) => {
    const isMatch = typeof value === 'string' && value !== '' && Buffer.byteLength(value) <= MAX_MATCH_BYTES;
    if (!isMatch) throw unfit(name, value, `a string of 1 to ${MAX_MATCH_BYTES} bytes`);
  },
  limit: count(1, 10_000),
  budgetMs: milliseconds(1, 60_000),
};

/** @throws LockOptionsError for an unknown name or a value out of bounds */
export function resolveListOptions(options: ListOptions): Required<ListOptions> {
  refuseUnknown(options, Object.keys(LIST_CHECKS));
  return { ...DEFAULTS, ...checked(options, LIST_CHECKS) };
}
