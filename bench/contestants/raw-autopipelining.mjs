import { open as openRaw } from './raw.mjs';

export function open(terms) {
  return openRaw(terms, { enableAutoPipelining: true });
}
