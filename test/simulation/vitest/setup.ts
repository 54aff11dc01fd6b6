import { drive } from './driver.js';
import { replaceGlobals } from './globals.js';
import { beginSimulation } from './simulation.js';

/** Vitest runs this before each test file of a worker. */
const worker = globalThis as { isSimulated?: boolean; readonly __vitest_worker__?: { readonly filepath?: string } };

beginSimulation(process.env.SIMULATION_SEED ?? '1', worker.__vitest_worker__?.filepath);
if (!worker.isSimulated) {
  worker.isSimulated = true;
  replaceGlobals();
  drive();
}
