import { TestRunner, type RunnerTestCase, type RunnerTestSuite } from 'vitest';
import { watch } from './driver.js';

/**
 * For so much simulated time a test may run that names no time limit: less than a minute, the longest time limit of a command, which
 * stands for never. In real time it has as long as all tests have, as slow as the machine may be.
 */
const LONGEST_MS = 50_000;

type Handler = (...args: never[]) => unknown;

/** What `onTestFinished` and `onTestFailed` asked for, where Vitest keeps it. */
interface Asked {
  readonly onFinished?: Handler[];
  readonly onFailed?: Handler[];
}

/**
 * Runs tests and hooks so that each fails as soon as it is clear that it never ends. It fails for Vitest, too, which then goes on
 * with what comes after it: a test that only its `aroundEach` gave up keeps its place among those that run, until none is left.
 */
export default class SimulatedRunner extends TestRunner {
  /** A time limit that a test names is also one of simulated time: some wait for what must not take so long. */
  async runTask(test: RunnerTestCase): Promise<void> {
    const limitMs = test.timeout === this.config.testTimeout ? LONGEST_MS : test.timeout;
    await watch(async () => TestRunner.getTestFn(test)(), limitMs);
  }

  override async onBeforeRunSuite(suite: RunnerTestSuite): Promise<void> {
    const hooks = TestRunner.getSuiteHooks(suite);
    for (const list of [hooks.beforeAll, hooks.beforeEach, hooks.afterEach, hooks.afterAll]) watchAll(list);
    await super.onBeforeRunSuite(suite);
  }

  /** The test itself has ended; what it asked for comes after this. */
  onTaskFinished(test: RunnerTestCase & Asked): void {
    for (const list of [test.onFinished, test.onFailed]) watchAll(list ?? []);
  }
}

function watchAll(handlers: Handler[]): void {
  handlers.forEach((handler, at) => (handlers[at] = watched(handler)));
}

/** What a hook returns is called afterwards, to clean up. */
function watched(handler: Handler): Handler {
  const run = async (...args: never[]) => {
    const result = await watch(async () => handler(...args));
    return typeof result === 'function' ? watched(result as Handler) : result;
  };
  return Object.assign(run, handler); // with what Vitest has noted there, such as its limit of time
}
