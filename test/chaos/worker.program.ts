/** A client process: the application of the simulation on real servers, until it is closed, killed, or stopped. */
import { setTimeout as sleep } from 'node:timers/promises';
import 'reflect-metadata';
import { Application, type Surroundings } from '../simulation/explorer/application.js';
import type { Access, Resource } from '../simulation/explorer/resource.js';
import { randomOf } from '../support/random.js';
import { Counters, inMariaDb, inPostgres } from './counters.js';
import { nowMs } from './history.js';
import { Journal } from './journal.js';
import * as library from './library.js';
import type { GuardStatement, Lock, LockParcel, RedisLockModuleOptions, SqlLockModuleOptions } from './library.js';
import type { Turn } from './liveness.js';
import { SQL_MUTANTS } from './sql-mutants.js';
import type { Topology } from './schedule.js';
import type { Held } from './wishes.js';

export interface WorkerTerms {
  worker: number;
  incarnation: number;
  seed: number;
  folder: string;
  store: Topology['store'];
  ports: number[];
  plan: Surroundings['plan'];
  /** Name of the mutant of the library. */
  mutant?: string;
}

/** The resource that the locks protect has answered. */
type Answer = ReturnType<Resource['access']> & Pick<Access, 'turn'>;

/** Its orders. */
export type Order = 'cohort' | 'force-release' | 'healed' | 'stop' | { adopt: LockParcel } | Answer;

/**
 * Its reports: it listens; a lock is being passed on; a turn when the faults are over; a lock that another worker
 * should adopt; what it asks of the resource.
 */
export type Report = 'ready' | 'passing' | Turn | LockParcel | Access;

const terms = JSON.parse(process.argv[2]!) as WorkerTerms;
const { worker, incarnation, folder, store, ports, plan } = terms;
const journal = new Journal(folder, `worker-${worker}-${incarnation}`);
const random = randomOf(terms.seed * 1_000 + worker * 100 + incarnation);
const BEAT_MS = 100;
/** A holder that lost the lock tries to write within this time, in milliseconds. */
const LATER_MS = 200;
/** The turns that a transaction guards: only the database can find out that their lock was lost. */
const EARLY = 0.3;

process.on('unhandledRejection', (reason) => unhandled(reason));
process.on('uncaughtException', (error) => unhandled(error));
function unhandled(reason: unknown): void {
  journal.note({ type: 'unhandled', worker, message: String(reason) });
}
const tell = (report: Report) => process.send?.(report);

const redisUrls = ports.map((port) => `redis://127.0.0.1:${port}`);
const urls = { postgres: `postgres://postgres@127.0.0.1:${ports[0]}/postgres`, mariadb: `mysql://app@127.0.0.1:${ports[0]}/shop` }; // prettier-ignore
const counters = { redis: undefined, postgres: inPostgres, mariadb: inMariaDb }[store];
const guarded = counters && store !== 'redis' ? new Counters(counters(urls[store])) : undefined;
if (terms.mutant !== undefined) SQL_MUTANTS[terms.mutant]!.inject?.(library);

function sourceOf(): object {
  if (store !== 'redis') return store === 'postgres' ? { postgres: urls.postgres } : { mysql: urls.mariadb };
  const servers = process.env.REDIS_CLIENT === 'node-redis' ? redisUrls.map((url) => ({ url })) : redisUrls;
  return servers.length === 1 ? { redis: servers[0]! } : { redlock: servers };
}

/** The locks of this store, of any kind. */
const openLocks: typeof library.openLocks = (options) =>
  store === 'redis'
    ? library.openLocks(options)
    : library.composeLocks(library.SQL, { ...options, createTable: true } as unknown as SqlLockModuleOptions).open();

let healed = false;
let looks = 0;
const parcels: LockParcel[] = [];
parcels.push = (parcel) => Number(tell(parcel!));
/** By turn: one access at a time. */
const accesses = new Map<string, (answer: Answer) => void>();
const world: Surroundings = {
  plan,
  resource: {
    access: (access) =>
      new Promise((resolve) => {
        accesses.set(access.turn, resolve);
        tell(access);
      }),
  },
  parcels,
  marks: new Map(),
  witness: { held: () => {}, losses: [] },
  scheduler: {
    stream: () => random,
    at: (us, act) => void setTimeout(act, us / 1_000 - nowMs()),
    get steps() {
      return looks++; // the beats show that the event loop runs
    },
  },
  stage: { source: () => sourceOf() as Pick<RedisLockModuleOptions, 'redis' | 'redlock'> },
  get isCalm() {
    return healed;
  },
  note: (entry, at) => journal.note(entry, at),
  complain: (rule, text) => unhandled(`${rule}: ${text}`),
  besides: guarded && ((turn, lock) => guard(guarded, turn, lock)),
};
const application = new Application(world, { ...library, openLocks }, {
  number: worker,
  incarnation,
  process: {
    get now() {
      return nowMs() * 1_000;
    },
    trueMs: (ms) => ms,
    setTimeout: (act, ms) => setTimeout(act, ms),
  },
}); // prettier-ignore
application.calmTurns.push = (turn) => Number(tell(turn!));
process.on('message', (order: Order) => {
  if (order === 'healed') healed = true;
  else if (order === 'stop') application.stop();
  else if (order === 'cohort') application.burst(() => tell('passing'));
  else if (order === 'force-release') application.burst((key) => application.forceRelease(key));
  else if ('adopt' in order) parcels[parcels.length] = order.adopt;
  else {
    accesses.get(order.turn)?.(order);
    accesses.delete(order.turn);
  }
});
process.on('disconnect', () => process.exit());
const beat = () => journal.note({ type: 'beat', process: `${worker}.${incarnation}`, worker });
beat();
const beating = setInterval(beat, BEAT_MS);
tell('ready');
await application.run();
clearInterval(beating);
process.disconnect();

/** Adds 1 to a counter in the database of the locks, in a transaction that guards the lock, without any other check. */
async function guard(database: Counters, turn: string, lock: Held): Promise<(() => Promise<void>) | undefined> {
  const { key } = lock;
  const base = await database.read(key);
  if (base === undefined) return undefined;
  const early = random() < EARLY ? guardOf(lock) : undefined;
  return async () => {
    if (!lock.isHeld) await sleep(random() * LATER_MS); // for the next holder to read before that
    const statement = early ?? guardOf(lock);
    if (statement) await database.write(statement, { turn, key, base });
  };
}

/** Undefined if the lock is known to be lost. */
function guardOf(lock: Held): GuardStatement | undefined {
  try {
    return library.guardStatement(lock as Lock);
  } catch {
    return undefined;
  }
}
