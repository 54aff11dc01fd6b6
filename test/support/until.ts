export { until } from '../../lib/testing/until.js';

/** Resolves at once for a signal that is already aborted, as can happen with little time or on a busy machine. */
export async function whenAborted(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}
