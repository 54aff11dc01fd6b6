import { setTimeout as pause } from 'node:timers/promises';

const TIME_LIMIT_MS = 60_000;

/** Polls until the condition is truthy. */
export async function until(condition: () => Promise<unknown>, { what }: { what: string }): Promise<void> {
  const deadline = performance.now() + TIME_LIMIT_MS;
  while (!(await condition())) {
    if (performance.now() >= deadline)
      throw new Error(`it timed out after ${TIME_LIMIT_MS} ms, waiting until ${what}.`);
    await pause(10);
  }
}
