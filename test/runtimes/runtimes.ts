/**
 * A test that shows a difference on a runtime. It runs there all the same, and has to fail: once it passes, remove it
 * from here.
 */
interface Difference {
  readonly file: string;
  /** A part of the title. */
  readonly title: string;
  /** As in docs/clients.md. */
  readonly because: string;
}

interface Runtime {
  /** The version of the npm package with its name. */
  readonly version: string;
  readonly differences: readonly Difference[];
}

/** The folders and files of test/ that run on each runtime. */
export const SUITES = [
  ...['adapters', 'contract', 'nest', 'page', 'schedule', 'telemetry', 'terminus', 'testing', 'sample'],
  'lease/losing',
  ...['begin-with-grant', 'deadlines', 'lock-order', 'lock-service', 'reentrancy', 'waiting'].map(
    (file) => `service/${file}`,
  ),
];

const BUSY = 'answers that arrived while the process was busy may be read too late';
const BLOCKED: Difference = {
  file: 'service/begin-with-grant.test.ts',
  title: 'a waiter keeps the lock that it was handed when it is busy from the first moment on',
  because: BUSY,
};

const FRAMES = 'warnings of `lockOrder` may name a line of the library';

/**
 * The files of {@link SUITES} that do not run: they count the timers of their process, where other files may leave some
 * in real time.
 */
export const ONLY_SIMULATED = ['contract/from-promises'];

export const RUNTIMES: Readonly<Record<'bun' | 'deno', Runtime>> = {
  bun: {
    version: '1.4.5',
    differences: [
      BLOCKED,
      {
        file: 'service/lock-order.test.ts',
        title: 'locks that are taken in opposite orders cause one warning',
        because: FRAMES,
      },
      {
        file: 'service/lock-order.test.ts',
        title: 'a call that takes them in the opposite order is reported',
        because: FRAMES,
      },
    ],
  },
  deno: { version: '2.9.6', differences: [BLOCKED] },
};
