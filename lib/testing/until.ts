import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Polls until the condition is truthy and returns what it gave. A condition that throws ends the wait. The default limit is for
 * what comes at once, on a machine that does other work.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  { what, timeoutMs = 30_000 }: { what: string; timeoutMs?: number },
): Promise<NonNullable<T>> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (performance.now() >= deadline) throw new Error(`Timed out after ${timeoutMs} ms, waiting until ${what}.`);
    await sleep(3);
  }
}
