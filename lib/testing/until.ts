import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Polls until the condition returns a truthy value, and returns that value. If the condition throws, the wait ends. The default limit
 * is generous: it allows for a busy machine, and most conditions hold at once.
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
