/**
 * Waits for an answer, but not for longer than it may take. One that comes later is nobody's, nor is its failure.
 * @param late called when the time is over; what it returns, or throws, stands for the answer
 */
export async function inTime<T>(answer: T | PromiseLike<T>, limitMs: number, late: () => T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, limitMs);
  });
  try {
    return await Promise.race([answer, over.then(late)]);
  } finally {
    clearTimeout(timer);
  }
}
