import { AsyncLocalStorage } from 'node:async_hooks';
import { checkHistory, type Terms, type Verdict } from '../../chaos/history-checker.js';
import { shutOut } from '../../chaos/liveness.js';
import type { Scheduler } from '../scheduler.js';
import { SHUTDOWN_MS, TTLS_MS, WAIT_MS } from './application.js';
import type { Copies } from './copies.js';
import { inflict } from './inflict.js';
import type { Marks } from './marks.js';
import { isRedlock, type Plan } from './plan.js';
import type { Violation } from './witness.js';
import { World } from './world.js';

/**
 * Within this time after the faults each process must get a lock again, in milliseconds: a node may rest, a clock be
 * behind.
 */
const LIVENESS_MS = 12_000;
/**
 * Keys are gone after this time, in microseconds: the places of processes that died while they waited stay for 10 s.
 */
const GONE_AFTER_US = 15_000_000;
/** After this time nothing may happen any more, in microseconds. */
const IDLE_AFTER_US = 120_000_000;
/** Servers find each other within this time, in microseconds. */
const FORMED_AFTER_US = 20e6;
const STEPS_AT_ONCE = 1_000;
/** How long an unconfirmed grant lasts, in milliseconds. */
const GRANT_MS = 2_000;

export interface Result {
  readonly plan: Plan;
  /** The hash of all events: the same plan gives the same hash. */
  readonly hash: string;
  readonly violations: readonly Violation[];
  readonly marks: Marks;
  readonly figures: Verdict['figures'] & { readonly grants: number };
  /** The duration within the simulation. */
  readonly seconds: number;
}

/**
 * Runs a plan, and reports what was wrong.
 * @param onTrace called with each line of the trace
 */
export async function simulate(plan: Plan, copies: Copies, onTrace?: (line: string) => void): Promise<Result> {
  const world = new World(plan, copies, onTrace);
  const onRejection = (reason: unknown) => world.unhandled(-1, reason);
  process.on('unhandledRejection', onRejection);
  try {
    await play(world);
  } finally {
    process.off('unhandledRejection', onRejection);
  }
  const { history, marks, scheduler } = world;
  const { violations, figures } = checkHistory(history, termsOf(plan));
  return {
    plan,
    hash: scheduler.hash,
    violations: [...violations, ...world.witness.violations, ...world.violations],
    marks,
    figures: { ...figures, grants: history.filter(({ type }) => type === 'granted').length },
    seconds: scheduler.now / 1e6,
  };
}

function termsOf({ topology, commandTimeoutMs, faults }: Plan): Terms {
  const isOfMany = isRedlock(topology);
  const attemptMs = 2 * commandTimeoutMs * (isOfMany ? 2 : 1);
  return {
    losses: isOfMany ? ['clock-ahead'] : ['flush', 'restart-empty', 'restart-old', 'clock-ahead', 'swap-primary'],
    livenessMs: LIVENESS_MS,
    answerMs: WAIT_MS + attemptMs + 2_000,
    beatMs: Infinity,
    // If there are other faults as well, a lock may be unreachable for longer.
    ...(faults.every(({ kind }) => kind === 'fail-over') && { regainMs: Math.max(...TTLS_MS) + GRANT_MS }),
    slackMs: 0,
  };
}

async function play(world: World): Promise<void> {
  const { plan, scheduler, stage } = world;
  await run(world, () => stage.isSettled, FORMED_AFTER_US);
  const begin = scheduler.now;
  for (let number = 0; number < plan.processes; number++) world.startProcess(number);
  for (const fault of plan.faults) scheduler.at(begin + fault.at, () => inflict(world, fault));
  await run(world, () => false, begin + plan.seconds * 1e6);
  world.isOver = true;
  await beCalm(world);
  await close(world);
}

/** All faults are over: each process must get a lock that the others want, too. */
async function beCalm(world: World): Promise<void> {
  const { scheduler, processes } = world;
  // A process that is being closed, or dies a little later, is started again.
  const isWhole = () =>
    world.stage.isSettled &&
    processes.every(({ process, application }) => !process.isDead && !process.isPaused && !application.isClosing);
  await run(world, isWhole, scheduler.now + 20e6);
  if (!isWhole())
    world.complain('process does not end', 'a process or server that was closed or killed did not come back');
  world.isCalm = true;
  const numbers = processes.map(({ number }) => number);
  world.note({ type: 'healed', workers: numbers });
  const isServed = () => shutOut(numbers, processes.flatMap(({ application }) => application.calmTurns)).length === 0; // prettier-ignore
  let looked = 0;
  const isOver = () => {
    // Because checking takes longer than a step.
    if (scheduler.now < looked) return false;
    looked = scheduler.now + 20_000;
    return isServed();
  };
  await run(world, isOver, scheduler.now + LIVENESS_MS * 1_000);
}

/** Everything ends: calls, processes, their keys in Redis, timers and connections. */
async function close(world: World): Promise<void> {
  const { scheduler, processes, servers } = world;
  for (const { application } of processes) application.stop();
  const areClosed = () => processes.every(({ application }) => application.isClosed);
  await run(world, areClosed, scheduler.now + (WAIT_MS + SHUTDOWN_MS + 9_000) * 1_000);
  let left = 0;
  for (const running of processes) {
    if (!running.application.isClosed) world.note({ type: 'hung', worker: running.number });
    left++;
    world.whenLeft(running, () => left--);
  }
  await run(world, () => left === 0, scheduler.now + 20e6);
  // Keys expire only if time goes on.
  let areGone = false;
  scheduler.after(GONE_AFTER_US, () => (areGone = true));
  await run(world, () => areGone, Infinity);
  servers.forEach(({ data }, node) => {
    const keys = data.names.filter((key) => !/^lock:(fence|admission)/.test(key));
    for (const key of keys) world.note({ type: 'left-behind', node, key });
  });
  world.stage.stop();
  const how = await run(world, () => false, scheduler.now + IDLE_AFTER_US);
  if (how !== 'idle') world.complain('process does not end', 'something is still planned when all has ended');
}

/** Runs in no async context. */
const outsideOfAll = AsyncLocalStorage.snapshot();

/** Runs what nextTick has queued, and microtasks, as Node.js does after each callback of its event loop. */
const { _tickCallback: runQueued } = process as unknown as { readonly _tickCallback: () => void };

/** Takes step after step, until it is over, until this time, or until nothing is planned any more. */
function run(world: World, isOver: () => boolean, untilUs: number): Promise<'over' | 'idle' | 'limit'> {
  const { scheduler } = world;
  return new Promise((resolve, reject) => {
    const steps = () => {
      try {
        for (let count = 0; count < STEPS_AT_ONCE; count++) {
          if (world.failure !== undefined) throw world.failure;
          const how = isOver() ? 'over' : whyNoStep(scheduler, untilUs);
          if (how !== undefined) {
            resolve(how);
            return;
          }
          scheduler.step();
          runQueued();
        }
      } catch (error) {
        reject(error instanceof Error ? error : new Error(String(error)));
        return;
      }
      setImmediate(steps);
    };
    outsideOfAll(() => setImmediate(steps));
  });
}

function whyNoStep({ nextAt }: Scheduler, untilUs: number): 'idle' | 'limit' | undefined {
  if (nextAt === undefined) return 'idle';
  return nextAt > untilUs ? 'limit' : undefined;
}
