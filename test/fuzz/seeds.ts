import fc from 'fast-check';

const FIXED_SEED = 20_260_405;

/**
 * Runs a property with a fixed seed, and then with a random one. A failure names its seed and the smallest failing
 * case; put these here as `{ seed, path }` to see it again.
 * @param examples run before the random cases
 */
export async function fuzz<Ts>(property: fc.IRawProperty<Ts>, runs: number, examples: Ts[] = []): Promise<void> {
  const drawn = Math.floor(Math.random() * 2 ** 31);
  for (const seed of [FIXED_SEED, drawn]) {
    await fc.assert(property as fc.IAsyncProperty<Ts>, { seed, numRuns: runs, examples });
  }
}
