import { clearImmediate, setImmediate } from './event-loop.js';

/**
 * Waits for an answer, but not for longer than it may take. One that comes later is nobody's, nor is its failure.
 * @param late called when the time is over; what it returns, or throws, stands for the answer
 */
export async function inTime<T>(answer: T | PromiseLike<T>, limitMs: number, late: () => T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let lookAgain: NodeJS.Immediate | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(() => {
      // After a pause of this process timers come first: what was answered meanwhile is read before it is given up.
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
