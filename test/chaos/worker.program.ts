/** A client process: increments counters under locks until it is told to stop, killed, or stopped. */
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { randomOf } from '../support/random.js';
import { openContestant, type Contestant, type HeldLock, type OpenTerms } from './contestants.js';
import { nowMs } from './history.js';
import { Journal } from './journal.js';
import type { Access, Answer } from './resource.program.js';

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
}

const terms = JSON.parse(process.argv[2]!) as WorkerTerms;
const { worker, incarnation, folder, keys, ttlsMs, answerMs } = { answerMs: terms.waitMs + 5_000, ...terms };
const journal = new Journal(folder, `worker-${worker}-${incarnation}`);
const random = randomOf(terms.seed * 1_000 + worker * 100 + incarnation);
const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
/** Looks at the lock that often while it holds it. */
const LOOK_MS = 10;

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
process.on('message', (message) => {
  if (message === 'healed') healed = true;
  if (message === 'stop') running = false;
});
process.on('disconnect', () => process.exit());
process.send?.('ready');
await Promise.all(Array.from({ length: terms.parallel }, () => takeTurns(contestant)));
await contestant.close();
resource.close();
process.disconnect();

async function takeTurns(locks: Contestant): Promise<void> {
  while (running) {
    await takeTurn(locks, `${worker}.${incarnation}.${turns++}`, pick(keys));
    await sleep(random() * 10);
  }
}

async function takeTurn(locks: Contestant, turn: string, key: string): Promise<void> {
  const style = random();
  // Most are short; some outlast their ttl, kept by the watchdog; some hold on to a lease that nobody extends.
  const kept = style < 0.92;
  const ttlMs = kept ? pick(ttlsMs) : Math.min(...ttlsMs);
  const holdMs = style < 0.9 ? random() * 15 : kept ? ttlMs * (1 + 2 * random()) : 2 * ttlMs;
  const wasHealed = healed;
  journal.note({ type: 'asked', worker, turn, key });
  let lock: HeldLock;
  try {
    lock = await inTime(locks.acquire(key, { ttlMs, watchdog: kept }));
  } catch (error) {
    const { code, name } = error as { code?: string; name: string };
    journal.note({ type: 'refused', turn, code: code ?? name });
    await sleep(random() * 50);
    return;
  }
  journal.note({
    type: 'granted',
    turn,
    ttlMs,
    token: lock.token,
    owner: lock.owner,
    sentAt: lock.sentAt,
    until: lock.until(),
    grantMs: lock.grantMs,
  });
  if (wasHealed) process.send?.('alive');
  await increment(lock, turn, key, holdMs);
}

async function increment(lock: HeldLock, turn: string, key: string, holdMs: number): Promise<void> {
  let ended = false;
  const end = (how: 'released' | 'lost') => {
    if (!ended) journal.note({ type: 'ended', turn, how });
    ended = true;
  };
  lock.onLost(() => end('lost'));
  const isHeld = () => {
    const until = lock.until();
    if (lock.isHeld()) journal.note({ type: 'held', turn, until });
    else end('lost');
    return !ended;
  };
  const { token } = lock;
  if (isHeld()) {
    const { accepted, value } = await resource.access({ turn, key, token });
    if (accepted) {
      for (const until = nowMs() + holdMs; isHeld() && nowMs() < until;)
        await sleep(Math.min(LOOK_MS, until - nowMs()));
      // Some do not look before they write: for locks with tokens that must not matter.
      const isCareless = token !== undefined && random() < 0.5;
      if (isCareless || isHeld()) await resource.access({ turn, key, token, base: value });
    }
  }
  if (isHeld()) end('released');
  await lock.release().catch(() => {}); // peers reject when the lock is not theirs any more
}

/** What comes later is given back. */
async function inTime(acquiring: Promise<HeldLock>): Promise<HeldLock> {
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
