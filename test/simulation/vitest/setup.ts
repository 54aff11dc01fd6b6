import { drive } from './driver.js';
import { replaceGlobals } from './globals.js';
import { beginSimulation } from './simulation.js';

/** Vitest runs this before each test file of a worker. */
const worker = globalThis as { isSimulated?: boolean };

beginSimulation(process.env.SIMULATION_SEED ?? '1');
if (!worker.isSimulated) {
  worker.isSimulated = true;
  replaceGlobals();
  drive();
}
