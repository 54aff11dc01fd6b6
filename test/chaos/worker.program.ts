/** A client process: increments counters under locks until it is told to stop, killed, or stopped. */
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { randomOf } from '../support/random.js';
import {
  openContestant,
  type Contestant,
  type HeldLock,
  type HeldSet,
  type LeaderTerm,
  type OpenTerms,
} from './contestants.js';
import { CALM_KEY, CALM_SET, nowMs, type EntryOf } from './history.js';
import type { Counters } from './counters.js';
import { Journal } from './journal.js';
import type { GuardStatement, LockParcel } from './library.js';
import type { Turn } from './liveness.js';
import type { Access, Answer } from './resource.program.js';
import { CROWDED_KEY, holdOf, ofPermits, ONE_PERMIT, perhapsLimited, shared, type Wish } from './wishes.js';

export interface WorkerTerms extends OpenTerms {
  worker: number;
  incarnation: number;
  seed: number;
  folder: string;
  socketPath: string;
  keys: string[];
  ttlsMs: number[];
  /** How many turns are under way at once. */
  parallel: number;
  /** It asks again at once, and again, when it is refused. */
  careless: boolean;
}

/** What it is told to do. */
export type Order = 'cohort' | 'force-release' | 'healed' | 'stop' | { adopt: LockParcel };

/** What it tells: it listens; a lock is being passed on; a turn when the faults are over; a lock that another one is to adopt. */
export type Report = 'ready' | 'passing' | Turn | LockParcel;

const terms = JSON.parse(process.argv[2]!) as WorkerTerms;
const { worker, incarnation, folder, keys, ttlsMs, answerMs } = { answerMs: terms.waitMs + 5_000, ...terms };
const self = `${worker}.${incarnation}`;
const journal = new Journal(folder, `worker-${worker}-${incarnation}`);
const random = randomOf(terms.seed * 1_000 + worker * 100 + incarnation);
const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
/** Looks at the lock that often while it holds it. */
const LOOK_MS = 10;
const BEAT_MS = 100;
/**
 * Turns that ask for one lock at once, so that it is passed on among them: the third does something amid that, and then the
 * last give up, so that there are tokens for some that ask later.
 */
const COHORT = { turns: 12, acting: 3, leaving: 4, laterMs: 20 };
/** How many of the turns are under two locks: when the faults are over more, as two that wait for each other show only then. */
const SETS = { share: 0.1, whenCalm: 0.4 };
/** Of the turns under one lock, where the store has this: shared ones, those that want permits, and what follows an exclusive one. */
const SHARES = {
  shared: 0.67,
  sharedSet: 0.5,
  sharedWhenCalm: 0.4,
  crowded: 0.25,
  permits: 0.85,
  downgrade: 0.2,
  detach: 0.1,
  deliveredTwice: 0.3,
};
/** Longer than a run goes on when the faults are over, in milliseconds. */
const UNTIL_SERVED_MS = 60_000;
/** The elections that all workers take part in. */
const ELECTIONS = ['leader 1', 'leader 2'];
/** Leaders resign after this time at the latest, in milliseconds: some before the nemesis ends their terms, some do not. */
const LONGEST_TERM_MS = 1_500;
/** Work of a leader ends within this time after it was asked to, in milliseconds. */
const ENDS_WITHIN_MS = 50;
/** Who lost the lock tries to write within this time, in milliseconds. */
const LATER_MS = 200;
/** A forced release that was sent to a node that hangs may run until so much later, in milliseconds. */
const LATE_MS = 3_000;
/** A forced release is answered, or gives up, within this time, in milliseconds, by a process that runs. */
const ANSWERED_WITHIN_MS = 5_000;

let running = true;
let turns = 0;
let healed = false;

process.on('unhandledRejection', (reason) => unhandled(reason));
process.on('uncaughtException', (error) => unhandled(error));
function unhandled(reason: unknown): void {
  journal.note({ type: 'unhandled', worker, message: String(reason) });
}

const resource = connectResource(terms.socketPath);
const contestant = await openContestant(terms);
const cohorts: Promise<void>[] = [];
process.on('message', (order: Order) => {
  if (order === 'healed') healed = true;
  if (order === 'stop') running = false;
  if (order === 'cohort') cohorts.push(takeTogether(() => tell('passing')));
  if (order === 'force-release') cohorts.push(takeTogether(takeAway));
  if (typeof order === 'object' && running) cohorts.push(adopt(order.adopt));
});
process.on('disconnect', () => process.exit());
const tell = (report: Report) => process.send?.(report);
const beat = () => journal.note({ type: 'beat', process: self, worker });
beat();
const beating = setInterval(beat, BEAT_MS);
tell('ready');
for (const key of ELECTIONS) {
  const ttlMs = pick(ttlsMs);
  contestant.campaign?.(key, ttlMs, (term) => lead(term, key, ttlMs));
}
await Promise.all(Array.from({ length: terms.parallel }, () => takeTurns(contestant)));
await Promise.all(cohorts);
await contestant.close();
clearInterval(beating);
resource.close();
process.disconnect();

async function takeTurns(locks: Contestant): Promise<void> {
  while (running) {
    if (locks.acquireAll && random() < (healed ? SETS.whenCalm : SETS.share)) await takeSet(locks.acquireAll);
    else if (healed) await takeTurn(locks, CALM_KEY, perhapsShared(shortTurn(), SHARES.sharedWhenCalm));
    else if (locks.hasModes && random() < SHARES.crowded) await takeTurn(locks, CROWDED_KEY, crowdedTurn());
    else await takeTurn(locks, pick(keys), perhapsShared(anyTurn()));
    await sleep(random() * 10);
  }
}

interface TurnPlan {
  wish: Wish;
  /** How long it holds the lock; asked when it has it. */
  holdMs: () => number;
}

interface Asked {
  askedAt: number;
  lock: HeldLock;
}

/** Most are short; some outlast their ttl, kept by the watchdog; some hold on to a lease that nobody extends. */
function anyTurn(): TurnPlan {
  const style = random();
  const watchdog = style < 0.92;
  const ttlMs = watchdog ? pick(ttlsMs) : Math.min(...ttlsMs);
  const holdMs = style < 0.9 ? random() * 15 : watchdog ? ttlMs * (1 + 2 * random()) : 2 * ttlMs;
  return { wish: perhapsLimited({ ttlMs, watchdog }, random), holdMs: () => holdMs };
}

function perhapsShared(turn: TurnPlan, share = SHARES.shared): TurnPlan {
  return contestant.hasModes && random() < share ? { ...turn, wish: shared(turn.wish) } : turn;
}

/** Some want the lock alone, or share it: they exclude all permits. */
function crowdedTurn(): TurnPlan {
  const turn = anyTurn();
  return random() < SHARES.permits ? { ...turn, wish: ofPermits(turn.wish, random) } : perhapsShared(turn);
}

function shortTurn(): TurnPlan {
  return { wish: { ttlMs: Math.min(...ttlsMs), watchdog: true }, holdMs: () => random() * 5 };
}

/** Many turns want one lock, which is passed on among them; amid that, something is done. */
async function takeTogether(act: (key: string) => unknown): Promise<void> {
  const isCrowded = contestant.hasModes && random() < SHARES.crowded;
  const key = isCrowded ? CROWDED_KEY : pick(keys);
  const giveUp = new AbortController();
  let granted = 0;
  const holdMs = () => {
    granted++;
    if (granted !== COHORT.acting) return random() * (granted < COHORT.acting ? 5 : 80);
    act(key);
    giveUp.abort();
    return 0;
  };
  const take = (signal?: AbortSignal) => {
    const { wish } = shortTurn();
    return takeTurn(contestant, key, { wish: { ...wish, ...(isCrowded && ONE_PERMIT), signal }, holdMs });
  };
  const leaves = (index: number) => index >= COHORT.turns - COHORT.leaving;
  const first = Array.from({ length: COHORT.turns }, (_, index) => take(leaves(index) ? giveUp.signal : undefined));
  const all = Promise.all(first);
  await Promise.race([new Promise((resolve) => giveUp.signal.addEventListener('abort', resolve)), all]);
  await sleep(COHORT.laterMs);
  await Promise.all([all, ...Array.from({ length: COHORT.leaving }, () => take())]);
}

async function takeAway(key: string): Promise<void> {
  const at = nowMs();
  const note = (until: number, answered?: number) =>
    journal.note({ type: 'forced', process: self, key, answered, until }, at);
  note(at + ANSWERED_WITHIN_MS + LATE_MS); // it may be killed before the answer
  const wasHeld = await contestant.forceRelease?.(key).catch(() => false);
  note(nowMs() + LATE_MS, wasHeld ? nowMs() : undefined);
}

async function takeTurn(locks: Contestant, key: string, plan: TurnPlan): Promise<void> {
  const turn = `${self}.${turns++}`;
  const asked = await (terms.careless ? insist : ask)(locks, turn, key, plan.wish);
  if (!asked) return;
  const { lock, askedAt } = asked;
  const { wish } = plan;
  const isAlone = holdOf(wish) === undefined;
  const goesOn = isAlone && key !== CALM_KEY;
  const isDetached = goesOn && locks.adopt !== undefined && random() < SHARES.detach;
  noteGranted(turn, wish, lock);
  if (key === CALM_KEY && isAlone) tell({ worker, askedAt, grantedAt: nowMs() });
  await increment(lock, turn, key, plan.holdMs(), wish, isDetached ? undefined : locks.counters);
  if (isDetached) await detach(lock);
  else if (goesOn && locks.hasModes && random() < SHARES.downgrade) await downgrade(lock, key, wish);
  await lock.release().catch(() => {}); // peers reject when the lock is not theirs any more
}

/** Goes on as a reader, which counts as another turn. */
async function downgrade(lock: HeldLock, key: string, { ttlMs }: Wish): Promise<void> {
  const wish = { ttlMs, mode: 'shared' } as const;
  await goOn(key, wish, 'downgraded', () => lock.downgrade!());
}

/** Another turn, in another process, goes on with the lock. */
async function detach(lock: HeldLock): Promise<void> {
  try {
    const parcel = await lock.detach!(pick(ttlsMs));
    tell(parcel);
    if (random() < SHARES.deliveredTwice) tell(parcel);
  } catch {} // it is kept, or was lost, or the server does not answer
}

async function adopt(parcel: LockParcel): Promise<void> {
  const lock = await goOn(parcel.key, { ttlMs: terms.ttlMs }, 'adopted', () => contestant.adopt!(parcel));
  await lock?.release();
}

/** A turn that goes on with a lock that is held. @returns the lock, which its caller releases; undefined when it was refused */
async function goOn(
  key: string,
  wish: Wish,
  came: EntryOf<'granted'>['came'],
  take: () => Promise<HeldLock>,
): Promise<HeldLock | undefined> {
  const turn = `${self}.${turns++}`;
  journal.note({ type: 'asked', worker, turn, key });
  let lock: HeldLock;
  try {
    lock = await take();
  } catch (error) {
    noteRefused(turn, error);
    return undefined;
  }
  noteGranted(turn, wish, lock, came);
  await increment(lock, turn, key, random() * 15, wish);
  return lock;
}

/** A turn under two locks, named in any order: for each of them it counts as a turn. */
async function takeSet(acquireAll: NonNullable<Contestant['acquireAll']>): Promise<void> {
  const calmly = healed || undefined;
  const chosen = new Set(calmly ? CALM_SET : [pick(keys), pick(keys)]);
  const own = [...chosen].map((key) => ({ key, turn: `${self}.${turns++}` }));
  if (random() < 0.5) own.reverse();
  const { wish, holdMs } = calmly ? shortTurn() : perhapsShared(anyTurn(), SHARES.sharedSet);
  const askedAt = nowMs();
  for (const { key, turn } of own) journal.note({ type: 'asked', worker, turn, key, calmly }, askedAt);
  const names = own.map(({ key }) => key);
  let set: HeldSet;
  try {
    set = await (calmly ? acquireAll(names, { ...wish, waitMs: UNTIL_SERVED_MS }) : inTime(acquireAll(names, wish)));
  } catch (error) {
    for (const { turn } of own) noteRefused(turn, error);
    await sleep(random() * 50);
    return;
  }
  const grantedAt = nowMs();
  const increments = own.map(({ key, turn }) => {
    const lock = set.get(key);
    if (!lock.isHeld()) return noteRefused(turn, { name: 'lost while another one was waited for' });
    noteGranted(turn, wish, lock);
    if (key === CALM_KEY) tell({ worker, askedAt, grantedAt });
    return increment(lock, turn, key, holdMs(), wish, contestant.counters);
  });
  await Promise.all(increments);
  await set.release();
}

function noteGranted(turn: string, wish: Wish, lock: HeldLock, came?: EntryOf<'granted'>['came']): void {
  const { token, owner, sentAt, grantMs } = lock;
  const { ttlMs, maxHoldMs } = wish;
  const hold = holdOf(wish);
  journal.note({
    type: 'granted',
    turn,
    ttlMs,
    token,
    owner,
    sentAt,
    until: lock.until(),
    grantMs,
    hold,
    came,
    maxHoldMs,
  });
}

/** One term as the leader: it counts as a turn, which ends a little after the work was asked to end. */
async function lead({ lock, askedAt, signal, resign }: LeaderTerm, key: string, ttlMs: number): Promise<void> {
  const turn = `${self}.${turns++}`;
  journal.note({ type: 'asked', worker, turn, key, endlessly: true }, askedAt);
  noteGranted(turn, { ttlMs }, lock);
  const { isHeld, end } = watched(lock, turn);
  const { token } = lock;
  const resignsAt = nowMs() + random() * LONGEST_TERM_MS;
  while (!signal.aborted && isHeld()) {
    const { accepted, value } = await resource.access({ turn, key, token });
    if (accepted && (random() < 0.5 || isHeld())) await resource.access({ turn, key, token, base: value });
    if (nowMs() >= resignsAt) void resign();
    await sleep(LOOK_MS);
  }
  await sleep(random() * ENDS_WITHIN_MS);
  end('released'); // unless it was lost: until here no other one may lead
}

/** @returns undefined when it was refused */
async function ask(locks: Contestant, turn: string, key: string, wish: Wish): Promise<Asked | undefined> {
  const askedAt = nowMs();
  journal.note({ type: 'asked', worker, turn, key }, askedAt);
  try {
    return { askedAt, lock: await inTime(locks.acquire(key, wish)) };
  } catch (error) {
    noteRefused(turn, error);
    await sleep(random() * 50);
    return undefined;
  }
}

function noteRefused(turn: string, reason: unknown): void {
  const { code, name } = reason as { code?: string; name: string };
  journal.note({ type: 'refused', turn, code: code ?? name });
}

/** Asks again at once whenever it is refused; only what was granted is written down. */
async function insist(locks: Contestant, turn: string, key: string, wish: Wish): Promise<Asked | undefined> {
  while (running && !wish.signal?.aborted) {
    const askedAt = nowMs();
    try {
      const lock = await locks.acquire(key, wish);
      journal.note({ type: 'asked', worker, turn, key }, askedAt);
      return { askedAt, lock };
    } catch {} // as careless callers do
  }
  return undefined;
}

/** Writes down how a turn holds its lock, and how that ends: once. */
function watched(lock: HeldLock, turn: string) {
  let ended = false;
  const end = (how: 'released' | 'lost') => {
    if (!ended)
      journal.note({ type: 'ended', turn, how: how === 'lost' && lock.hasOverstayed?.() ? 'overstayed' : how });
    ended = true;
  };
  lock.onLost(() => end('lost'));
  const isHeld = () => {
    const until = lock.until();
    if (lock.isHeld()) journal.note({ type: 'held', turn, until });
    else end('lost');
    return !ended;
  };
  return { isHeld, end };
}

/**
 * Until it no longer needs its lock, which its caller releases then. Readers write nothing; and what permits protect is no counter.
 * @param counters further ones, in the database of the locks
 */
async function increment(
  lock: HeldLock,
  turn: string,
  key: string,
  holdMs: number,
  wish: Wish,
  counters?: Counters,
): Promise<void> {
  const { isHeld, end } = watched(lock, turn);
  const { token } = lock;
  const { mode } = holdOf(wish) ?? {};
  if (isHeld()) {
    const base = await counters?.read(key);
    // Some ask for the statement early: then only the database can find out that the lock was lost.
    const early = base !== undefined && random() < 0.3 ? guardOf(lock) : undefined;
    const seen = mode === 'permits' ? undefined : await resource.access({ turn, key, token });
    if (seen?.accepted !== false) {
      for (const until = nowMs() + holdMs; isHeld() && nowMs() < until;)
        await sleep(Math.min(LOOK_MS, until - nowMs()));
      // Some do not look before they write: for locks with tokens that must not matter.
      const isCareless = token !== undefined && random() < 0.5;
      if (seen && (isCareless || isHeld()))
        await resource.access({ turn, key, token, ...(mode === undefined && { base: seen.value }) });
      if (base !== undefined) {
        if (!isHeld()) await sleep(random() * LATER_MS); // for the next holder to read before that
        const guard = early ?? guardOf(lock);
        if (guard) await counters!.write(guard, { turn, key, base });
      }
    }
  }
  if (isHeld()) end('released');
}

/** Undefined when the lock is known to be lost. */
function guardOf(lock: HeldLock): GuardStatement | undefined {
  try {
    return lock.guard!();
  } catch {
    return undefined;
  }
}

/** What comes later is given back. */
async function inTime<Held extends HeldLock | HeldSet>(acquiring: Promise<Held>): Promise<Held> {
  let isLate = false;
  void acquiring.then(
    (lock) => isLate && lock.release().catch(() => {}),
    () => {},
  );
  const limit = new AbortController();
  const late = sleep(answerMs, undefined, { signal: limit.signal }).then(() => {
    isLate = true;
    throw Object.assign(new Error('hung'), { code: 'HUNG' });
  });
  late.catch(() => {});
  try {
    return await Promise.race([acquiring, late]);
  } finally {
    limit.abort();
  }
}

function connectResource(path: string) {
  const socket = connect(path);
  const open = new Map<string, (answer: Answer) => void>();
  createInterface({ input: socket }).on('line', (line) => {
    const answer = JSON.parse(line) as Answer;
    open.get(answer.turn)?.(answer);
  });
  return {
    /** One at a time for each turn. */
    access: (access: Access) =>
      new Promise<Answer>((resolve) => {
        open.set(access.turn, (answer) => {
          open.delete(access.turn);
          resolve(answer);
        });
        socket.write(`${JSON.stringify(access)}\n`);
      }),
    close: () => socket.end(),
  };
}
