import fc from 'fast-check';

const FIXED_SEED = 20_260_405;

/**
 * Runs a property with a seed that is always the same, and then with one drawn now. A failure names its seed and the
 * smallest case that was found; put it here as `{ seed, path }` to see it again.
 * @param examples run before the cases that are drawn
 */
export async function fuzz<Ts>(property: fc.IRawProperty<Ts>, runs: number, examples: Ts[] = []): Promise<void> {
  const drawn = Math.floor(Math.random() * 2 ** 31);
  for (const seed of [FIXED_SEED, drawn]) {
    await fc.assert(property as fc.IAsyncProperty<Ts>, { seed, numRuns: runs, examples });
  }
}
