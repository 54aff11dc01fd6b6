import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { SimulatedProcess } from './process.js';
import { Scheduler } from './scheduler.js';

/** What a program needs to show the order of callbacks. */
interface Loop {
  readonly log: string[];
  setTimeout(run: () => void, ms: number): { close(): unknown };
  setImmediate(run: () => void): void;
  /** Something arrives from the network while this callback still runs. */
  input(run: () => void): void;
  /** Keeps the event loop busy. */
  block(ms: number): void;
}

/** All of them begin in an immediate, and their timers are due, at the latest, after `block`. */
const PROGRAMS: readonly (readonly [title: string, run: (loop: Loop) => void])[] = [
  [
    'timers that are due come first, then input, then immediates',
    ({ log, setTimeout, setImmediate, input, block }) => {
      setImmediate(() => log.push('immediate'));
      input(() => log.push('input'));
      setTimeout(() => log.push('timer'), 1);
      block(20);
    },
  ],
  [
    'timers run in the order of their times, and of one time in the order in which they were set',
    ({ log, setTimeout, block }) => {
      setTimeout(() => log.push('c'), 40);
      setTimeout(() => log.push('a'), 1);
      setTimeout(() => log.push('b'), 20);
      setTimeout(() => log.push('a again'), 1);
      block(50);
    },
  ],
  [
    'nextTicks come before promises, and both between two timers that are due',
    ({ log, setTimeout, block }) => {
      const both = (name: string) => () => {
        log.push(name);
        void Promise.resolve().then(() => {
          log.push(`promise of ${name}`);
          process.nextTick(() => log.push(`late tick of ${name}`));
        });
        process.nextTick(() => log.push(`tick of ${name}`));
      };
      setTimeout(both('one'), 1);
      setTimeout(both('two'), 1);
      block(20);
    },
  ],
  [
    'an immediate that an immediate sets runs one round later, after timers that are due by then',
    ({ log, setTimeout, setImmediate, block }) => {
      setImmediate(() => {
        log.push('immediate');
        setImmediate(() => log.push('next immediate'));
        setTimeout(() => log.push('timer'), 1);
        block(20);
      });
      setImmediate(() => log.push('other immediate'));
    },
  ],
  [
    'a timer that a timer sets does not run in the same round',
    ({ log, setTimeout, setImmediate, block }) => {
      setTimeout(() => {
        log.push('timer');
        setTimeout(() => log.push('its timer'), 1);
        setImmediate(() => log.push('its immediate'));
        block(20);
      }, 1);
      block(20);
    },
  ],
  [
    'a timer that was cleared by another one of the same round does not run',
    ({ log, setTimeout, block }) => {
      setTimeout(() => {
        log.push('clears');
        second.close();
      }, 1);
      const second = setTimeout(() => log.push('cleared'), 1);
      block(20);
    },
  ],
];

describe('the event loop of a simulated process', () => {
  it.each(PROGRAMS)('has the phases of the event loop of Node.js: %s', async (_title, program) => {
    const order = await real(program);
    expect(order).not.toEqual([]);
    expect(await simulated(program)).toEqual(order);
  });
});

/** The order of times is shown by timers that are further apart than this. */
const AT_ONCE_MS = 10;

/** The order in Node.js, from a run in which the machine did not interrupt this process between the lines of the program. */
async function real(program: (loop: Loop) => void): Promise<string[]> {
  for (;;) {
    const { log, isInterrupted } = await inNode(program);
    if (!isInterrupted) return log;
  }
}

async function inNode(program: (loop: Loop) => void): Promise<{ log: string[]; isInterrupted: boolean }> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const reader = connect((server.address() as { port: number }).port, '127.0.0.1');
  const [[writer]] = (await Promise.all([once(server, 'connection'), once(reader, 'connect')])) as [
    [typeof reader],
    unknown,
  ];
  onTestFinished(() => {
    for (const socket of [reader, writer]) socket.destroy();
    server.close();
  });
  let startedAt = 0;
  let firstBlockAt = 0;
  const block = (ms: number) => {
    firstBlockAt ||= performance.now();
    const until = performance.now() + ms;
    while (performance.now() < until);
  };
  const log = await logOf(
    {
      setTimeout: (run, ms) => setTimeout(run, ms),
      setImmediate: (run) => void setImmediate(run),
      input(run) {
        reader.once('data', run);
        writer.write('x'); // at once, because there is room for it
      },
      block,
    },
    (loop) => {
      startedAt = performance.now();
      program(loop);
    },
  );
  return { log, isInterrupted: firstBlockAt - startedAt > AT_ONCE_MS };
}

async function simulated(program: (loop: Loop) => void): Promise<string[]> {
  const scheduler = new Scheduler('phases');
  const process = new SimulatedProcess(scheduler, 'phases');
  const step = () => {
    if (scheduler.step()) setImmediate(step);
  };
  setImmediate(step);
  return logOf(
    {
      setTimeout: (run, ms) => process.setTimeout(run, ms, []),
      setImmediate: (run) => void process.setImmediate(run, []),
      input: (run) => process.receive(run),
      block(ms) {
        const until = process.monotonicMs() + ms;
        while (process.monotonicMs() < until);
      },
    },
    program,
  );
}

/** How many rounds the loop makes until a program has ended: more than any of them needs. */
const ROUNDS = 8;

function logOf(loop: Omit<Loop, 'log'>, program: (loop: Loop) => void): Promise<string[]> {
  const log: string[] = [];
  return new Promise((resolve) => {
    const goRound = (rounds: number) => loop.setImmediate(() => (rounds > 0 ? goRound(rounds - 1) : resolve(log)));
    loop.setImmediate(() => {
      program({ ...loop, log });
      goRound(ROUNDS);
    });
  });
}
