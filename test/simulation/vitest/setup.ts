import { relative } from 'node:path';
import { drive } from './driver.js';
import { replaceGlobals } from './globals.js';
import { beginSimulation } from './simulation.js';

/** Vitest runs this before each test file of a worker. */
const worker = globalThis as { isSimulated?: boolean; readonly __vitest_worker__?: { readonly filepath?: string } };

// By its path in the project: in any place, the same seed does the same.
const file = relative(process.cwd(), worker.__vitest_worker__?.filepath ?? '');
beginSimulation(process.env.SIMULATION_SEED ?? '1', file);
if (!worker.isSimulated) {
  worker.isSimulated = true;
  replaceGlobals();
  drive();
}
