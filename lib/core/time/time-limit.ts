import { clearImmediate, setImmediate } from './event-loop.js';

/**
 * Waits for an answer, up to a time limit in milliseconds. Ignores an answer or a failure that comes later.
 * @param late called when the time is over: its result or its error counts as the answer
 */
export async function inTime<T>(answer: T | PromiseLike<T>, limitMs: number, late: () => T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let lookAgain: NodeJS.Immediate | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(() => {
      // After a pause of this process, timers run before answers: an answer that arrived meanwhile still counts.
      lookAgain = setImmediate(resolve);
    }, limitMs);
  });
  try {
    return await Promise.race([answer, over.then(late)]);
  } finally {
    clearTimeout(timer);
    clearImmediate(lookAgain);
  }
}
