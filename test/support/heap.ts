import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
export const collectGarbage = runInNewContext('gc') as () => void;

/** The bytes that one of 6 rounds of this work leaves: a median, since in some rounds Node.js compiles what runs often. */
export async function bytesLeftBy(work: (round: number) => Promise<unknown>): Promise<number> {
  const left: number[] = [];
  for (const round of Array(6).keys()) {
    const before = heapUsed();
    await work(round);
    left.push(heapUsed() - before);
  }
  return left.sort((a, b) => a - b)[2]!;
}

function heapUsed(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}
