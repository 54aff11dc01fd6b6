import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const here = fileURLToPath(new URL('.', import.meta.url));

/** Tests and hooks that never end, in simulated time. */
export default defineConfig({
  test: {
    root: here,
    include: ['never-ending.ts'],
    runner: `${here}../runner.ts`,
    setupFiles: [`${here}../setup.ts`],
    pool: 'forks',
    isolate: false,
    env: { SIMULATION_STUCK_ROUNDS: '50' },
  },
});
