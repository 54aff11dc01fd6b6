import { real } from './globals.js';
import { simulation } from './simulation.js';

/** Within this time, in microseconds, steps follow each other at once. */
const SOON_US = 200;
/** How many idle rounds the real event loop must make before simulated time advances by more than that. */
const IDLE_ROUNDS = 24;
const STEPS_AT_ONCE = 16;
/**
 * After how many rounds without a plan, each of a real millisecond or more, nothing will ever happen. Rounds in which a
 * module is being loaded do not count.
 */
const STUCK_ROUNDS = Number(process.env.SIMULATION_STUCK_ROUNDS ?? 3_000);
/** How much simulated time a hook may take, in milliseconds: with a repeating timer, something is always planned. */
const LONGEST_MS = 3_600_000;

let idleRounds = 0;
let stuckRounds = 0;
interface Watched {
  readonly limitMs: number;
  /** When its time is over, in microseconds since the beginning of the simulation. */
  readonly end: number;
  readonly fail: (error: Error) => void;
}

/** The tests and hooks that run. */
const watched = new Set<Watched>();

/**
 * Runs the simulation, step by step, as long as this process lives. Each step is taken in its own callback of the real
 * event loop, so that Node.js runs nextTicks and microtasks after it. What the real event loop still has to do, such as
 * loading a module, comes first.
 */
export function drive(): void {
  const { scheduler } = simulation();
  if (scheduler.nextAt === undefined) {
    if (!isLoading() && ++stuckRounds === STUCK_ROUNDS)
      for (const { fail } of watched) fail(new Error('Nothing will ever happen: what is waited for never ends.'));
    real.setTimeout(drive, 1);
    return;
  }
  stuckRounds = 0;
  for (const { limitMs, end, fail } of watched)
    if (scheduler.now > end) fail(new Error(`It has taken more than ${limitMs / 1_000} s of simulated time.`));
  for (let step = 0; step < STEPS_AT_ONCE; step++) real.setImmediate(takeStep);
  real.setImmediate(drive);
}

/**
 * Runs a test or a hook, which fails as soon as it is clear that it never ends.
 * @param limitMs in simulated time
 */
export async function watch<T>(run: () => Promise<T>, limitMs = LONGEST_MS): Promise<T> {
  stuckRounds = 0;
  let entry: Watched;
  const end = simulation().scheduler.now + limitMs * 1_000;
  const never = new Promise<never>((_, fail) => watched.add((entry = { limitMs, end, fail })));
  try {
    return await Promise.race([run(), never]);
  } finally {
    watched.delete(entry!);
  }
}

function takeStep(): void {
  const { scheduler } = simulation();
  const { nextAt } = scheduler;
  if (nextAt === undefined) return;
  if (nextAt > scheduler.now + SOON_US && (++idleRounds < IDLE_ROUNDS || isLoading())) return;
  idleRounds = 0;
  scheduler.step();
}

/** Vitest's records about the modules of this worker. */
interface WorkerState {
  readonly resolvingModules: ReadonlySet<string>;
  readonly evaluatedModules: {
    readonly idToModuleMap: ReadonlyMap<string, { readonly promise?: Promise<unknown>; readonly evaluated: boolean }>;
  };
}

/**
 * Whether a module is being loaded, such as by `import()` in the library: `vi.dynamicImportSettled()` waits for the
 * same.
 */
function isLoading(): boolean {
  const { resolvingModules, evaluatedModules } = (globalThis as unknown as { __vitest_worker__: WorkerState })
    .__vitest_worker__;
  if (resolvingModules.size > 0) return true;
  for (const { promise, evaluated } of evaluatedModules.idToModuleMap.values()) if (promise && !evaluated) return true;
  return false;
}
