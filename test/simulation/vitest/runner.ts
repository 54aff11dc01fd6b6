import { TestRunner } from 'vitest';
import { watch } from './driver.js';

type Test = Parameters<typeof TestRunner.getTestFn>[0];
type Suite = Parameters<typeof TestRunner.getSuiteHooks>[0];
type Handler = (...args: never[]) => unknown;

/**
 * Runs tests and hooks so that each fails as soon as it is clear that it never ends. It fails for Vitest, too, which then goes on
 * with what comes after it: a test that only its `aroundEach` gave up keeps its place among those that run, until none is left.
 */
export default class SimulatedRunner extends TestRunner {
  async runTask(test: Test): Promise<void> {
    await watch(() => TestRunner.getTestFn(test)());
  }

  override async onBeforeRunSuite(suite: Suite): Promise<void> {
    const hooks = TestRunner.getSuiteHooks(suite);
    for (const list of [hooks.beforeAll, hooks.beforeEach, hooks.afterEach, hooks.afterAll]) watchAll(list);
    await super.onBeforeRunSuite(suite);
  }

  /** Vitest calls this between a test and what `onTestFinished` and `onTestFailed` asked for. */
  onTaskFinished(test: Test & { onFinished?: Handler[]; onFailed?: Handler[] }): void {
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
