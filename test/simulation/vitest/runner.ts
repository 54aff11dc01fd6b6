import { TestRunner, type RunnerTestCase, type RunnerTestSuite } from 'vitest';
import { watch } from './driver.js';

/**
 * How much simulated time a test without a time limit may take: less than a minute, the longest time limit of a
 * command, which stands for never. In real time it has the limit of all tests, however slow the machine is.
 */
const LONGEST_MS = 50_000;

type Handler = (...args: never[]) => unknown;

/** The requests of `onTestFinished` and `onTestFailed`, in the place where Vitest keeps them. */
interface Asked {
  readonly onFinished?: Handler[];
  readonly onFailed?: Handler[];
}

/**
 * Runs tests and hooks so that each fails as soon as it is clear that it never ends. It also fails for Vitest, which
 * then continues with what comes after it: if only its `aroundEach` gave a test up, the test would keep its place among
 * the running ones, until none is left.
 */
export default class SimulatedRunner extends TestRunner {
  /** The time limit of a test is also a limit in simulated time: some tests wait for what must not take so long. */
  async runTask(test: RunnerTestCase): Promise<void> {
    const limitMs = test.timeout === this.config.testTimeout ? LONGEST_MS : test.timeout;
    await watch(async () => TestRunner.getTestFn(test)(), limitMs);
  }

  override async onBeforeRunSuite(suite: RunnerTestSuite): Promise<void> {
    const hooks = TestRunner.getSuiteHooks(suite);
    for (const list of [hooks.beforeAll, hooks.beforeEach, hooks.afterEach, hooks.afterAll]) watchAll(list);
    await super.onBeforeRunSuite(suite);
  }

  /** The test itself has ended; its requests come after this. */
  onTaskFinished(test: RunnerTestCase & Asked): void {
    for (const list of [test.onFinished, test.onFailed]) watchAll(list ?? []);
  }
}

function watchAll(handlers: Handler[]): void {
  handlers.forEach((handler, at) => (handlers[at] = watched(handler)));
}

/** The result of a hook is called afterwards, to clean up. */
function watched(handler: Handler): Handler {
  const run = async (...args: never[]) => {
    const result = await watch(async () => handler(...args));
    return typeof result === 'function' ? watched(result as Handler) : result;
  };
  return Object.assign(run, handler); // with Vitest's records there, such as its time limit
}
