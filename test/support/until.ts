export { until } from '../../lib/testing/until.js';

/** Resolves at once for a signal that was aborted before, as it can be where time is short or the machine busy. */
export async function whenAborted(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}
