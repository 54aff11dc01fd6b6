import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RedisLockSettings } from '../../lib/options.js';
import type { Rule } from './history-checker.js';

/** In a file of the built library, each place where the text stands. */
interface Edit {
  file: string;
  find: string;
  put: string;
}

/** The library broken in one way, and how chaos catches it. */
export interface Mutant {
  what: string;
  edits: readonly Edit[];
  options?: RedisLockSettings;
  /** Number of nodes of the topology, seed and duration by which it is known to be caught. */
  nodes: number;
  seed: number;
  seconds: number;
  caughtBy: Rule;
}

const FROM_REPLY: readonly Edit[] = [
  {
    file: 'backends/single-node.backend.js',
    find: 'acquired(vote.fencingToken, sentAt, waiting)',
    put: 'acquired(vote.fencingToken, this.#now(), waiting)',
  },
  {
    file: 'backends/single-node.backend.js',
    find: 'told(extendOutcome(extension, sentAt))',
    put: 'told(extendOutcome(extension, this.#now()))',
  },
  { file: 'backends/redlock.backend.js', find: ', sentAt });', put: ', sentAt: this.#now() });' },
  { file: 'backends/redlock.backend.js', find: '{ ...outcome, sentAt }', put: '{ ...outcome, sentAt: this.#now() }' },
];

const ALWAYS_EXTENDED: Edit = {
  file: 'scripts/extend.script.js',
  find: "if holder == owner then return redis.call('PEXPIRE', lock, ttl) end",
  put: "redis.call('PEXPIRE', lock, ttl) if true then return 1 end",
};

export const MUTANTS: Readonly<Record<string, Mutant>> = {
  'release-without-owner-check': {
    what: 'a release frees the lock, whoever holds it',
    edits: [{ file: 'scripts/release.script.js', find: 'if holder == owner then', put: 'if holder then' }],
    nodes: 1,
    seed: 1,
    seconds: 10,
    caughtBy: 'overlapping holders',
  },
  'deadline-from-the-reply': {
    what: 'a lease counts from when its answer came',
    edits: FROM_REPLY,
    nodes: 1,
    seed: 4,
    seconds: 60,
    caughtBy: 'overlapping holders',
  },
  'restarted-node-votes-at-once': {
    what: 'a node that came back without its keys votes (restartGuard: false)',
    edits: [],
    options: { restartGuard: false },
    nodes: 3,
    seed: 1,
    seconds: 60,
    caughtBy: 'overlapping holders',
  },
  'token-without-write-back': {
    what: 'a Redlock issues a token that no majority knows',
    edits: [
      {
        file: 'backends/redlock-decisions.js',
        find: "{ status: 'write-back', fencingToken, to }",
        put: "{ status: 'issued', fencingToken }",
      },
    ],
    nodes: 3,
    seed: 1,
    seconds: 10,
    caughtBy: 'token not above that of an earlier holder',
  },
  'counter-not-seeded': {
    what: 'a counter that was lost begins anew with 1',
    edits: [{ file: 'scripts/fence.js', find: 'us = time[1] * 1000000 + time[2]', put: 'us = 1' }],
    nodes: 1,
    seed: 1,
    seconds: 10,
    caughtBy: 'token not above that of an earlier holder',
  },
  'old-counters-go-on': {
    what: 'a Redlock node counts on from the counters of an older snapshot',
    edits: [{ file: 'scripts/fence.js', find: 'math.max(1e15, tonumber(votes_from) or 0)', put: '1e15' }],
    nodes: 3,
    seed: 209,
    seconds: 90,
    caughtBy: 'token not above that of an earlier holder',
  },
  'cohort-after-the-loss': {
    what: 'a process passes a lock on for as long as it has tokens, and does not find that it was lost',
    edits: [
      ALWAYS_EXTENDED,
      { file: 'service/lock-queue.js', find: 'now >= endsAt || isUnsettled', put: 'isUnsettled' },
      {
        file: 'service/lock-queue.js',
        find: 'now < sentAt + (deadline - sentAt) * PASSED_WITHIN',
        put: 'true',
      },
    ],
    nodes: 1,
    seed: 10,
    seconds: 30,
    caughtBy: 'passed on after a loss',
  },
  'subscription-never-doubted': {
    what: 'a process waits for messages on a connection that the server has closed',
    edits: [{ file: 'backends/inbox.js', find: 'void this.#check(this.#client);', put: '' }],
    nodes: 1,
    seed: 2,
    seconds: 10,
    caughtBy: 'no lock after the nemesis',
  },
  'refusals-in-microtasks': {
    what: 'a refusal is settled before the event loop has run',
    edits: [
      {
        file: 'service/refusal-gate.js',
        find: '(reason instanceof LockUnavailableError ? this.#unavailable : this.#refused).add(settle)',
        put: 'queueMicrotask(settle)',
      },
    ],
    nodes: 1,
    seed: 1,
    seconds: 10,
    caughtBy: 'event loop stood still',
  },
  'replica-is-kept': {
    what: 'the connection to a server that has become a replica is kept',
    edits: [
      {
        file: 'backends/redis-connection.js',
        find: "this.stream?.destroy(new Error('its server is a replica'));",
        put: '',
      },
    ],
    nodes: 1,
    seed: 6,
    seconds: 10,
    caughtBy: 'no lock after the nemesis',
  },
  'taken-by-force-and-passed-on': {
    what: 'a process passes on a lock that it has taken away by force, and nobody hears of it',
    edits: [
      { file: 'service/lock.service.js', find: 'taken?.from.includes(lease.claim.owner)', put: 'false' },
      { file: 'backends/redis-node.js', find: 'this.#suspect?.(takenKey, ticket);', put: 'void 0;' },
    ],
    nodes: 1,
    seed: 1,
    seconds: 20,
    caughtBy: 'passed on after a loss',
  },
  'extension-that-always-counts': {
    what: 'an extension counts, whoever holds the lock, or nobody',
    edits: [ALWAYS_EXTENDED],
    nodes: 1,
    seed: 100,
    seconds: 20,
    caughtBy: 'overlapping holders',
  },
  'held-until-told': {
    what: 'a lock counts as held until a timer says otherwise',
    edits: [{ file: 'lease/lease.js', find: "this.#state !== 'held' || this.now() < this.#deadline", put: 'true' }],
    nodes: 1,
    seed: 1,
    seconds: 10,
    caughtBy: 'overlapping holders',
  },
  'lock-without-ttl': {
    what: 'a lock is set without a ttl',
    edits: [{ file: 'scripts/contend.script.js', find: "redis.pcall('SET', lock, owner, 'PX', ttl)", put: "redis.pcall('SET', lock, owner)" }], // prettier-ignore
    nodes: 1,
    seed: 176,
    seconds: 20,
    caughtBy: 'lock left behind',
  },
};

/** Makes a broken copy of the built library. */
export function applyMutant(name: string, library: string, copy: string): void {
  cpSync(library, copy, { recursive: true });
  for (const [file, source] of brokenFiles(name, library)) writeFileSync(join(copy, file), source);
}

/**
 * The files that a mutant changes, as it changes them.
 * @throws Error when a text that is to be replaced is not there: the library has changed, and so must the mutant
 */
export function brokenFiles(name: string, library: string): Map<string, string> {
  const files = new Map<string, string>();
  for (const { file, find, put } of MUTANTS[name]!.edits) {
    const source = files.get(file) ?? readFileSync(join(library, file), 'utf8');
    if (!source.includes(find)) {
      throw new Error(`The mutant ${name} does not apply: "${find}" is not in ${file}. Correct it in mutants.ts.`);
    }
    files.set(file, source.replaceAll(find, put));
  }
  return files;
}
