import { clearImmediate, setImmediate } from './event-loop.js';

/**
 * Waits for an answer, up to a time limit. An answer that comes later is ignored, and so is its failure.
 * @param limitMs in milliseconds
 * @param late called when the time is over; its result, or error, stands for the answer
 */
export async function inTime<T>(answer: T | PromiseLike<T>, limitMs: number, late: () => T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let lookAgain: NodeJS.Immediate | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(() => {
      // After a pause of this process timers run first: answers that arrived meanwhile are read before they are given up.
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
