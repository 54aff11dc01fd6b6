import { pathToFileURL } from 'node:url';
import { Counters, inMariaDb, inPostgres } from './counters.js';
import { nowMs } from './history.js';
import type {
  GuardStatement,
  Lock,
  LockHandle,
  LockParcel,
  RedisLockModuleOptions,
  RedisLockSettings,
  SqlLockModuleOptions,
} from './library.js';
import { ALL_MUTANTS } from './all-mutants.js';
import type { Topology } from './topologies.js';
import { hasOverstayed, leaseLeftMs, tokenOf, wantsPermits, type Held, type Wish } from './wishes.js';

export const CONTESTANTS = ['library', 'redlock-5', 'redis-semaphore'] as const;
export type ContestantId = (typeof CONTESTANTS)[number];

export interface HeldLock {
  readonly token?: number;
  readonly owner?: string;
  /** When the command of the lease was sent, by its deadline. */
  readonly sentAt?: number;
  /** It was begun with a grant for so long, made by another one's release some time after `sentAt`. */
  readonly grantMs?: number;
  /** Whether its holder may go on, by what the contestant offers to ask. */
  isHeld(): boolean;
  /** The deadline of the lease; undefined where there is none to be asked for. */
  until(): number | undefined;
  onLost(tell: () => void): void;
  /** Whether it was lost as its turn has held it for too long. */
  hasOverstayed?(): boolean;
  /** The statement by which a transaction in the database of the locks guards it. @throws when it is known to be lost */
  guard?(): GuardStatement;
  /** Goes on as a reader. */
  downgrade?(): Promise<HeldLock>;
  /** Ends it here; whoever has the parcel can go on with it. */
  detach?(ttlMs: number): Promise<LockParcel>;
  release(): Promise<unknown>;
}

/** Several locks, acquired together. */
export interface HeldSet {
  get(key: string): HeldLock;
  release(): Promise<unknown>;
}

/** One term of a worker as the leader. */
export interface LeaderTerm {
  lock: HeldLock;
  /** When this campaign began. */
  askedAt: number;
  /** Aborts when the work of the term has to end. */
  signal: AbortSignal;
  resign(): Promise<void>;
}

export interface Contestant {
  /** In the database of the locks, if they are in one. */
  readonly counters?: Counters;
  /** Whether several can hold a lock, as readers or with permits. */
  readonly hasModes?: boolean;
  /** Peers have one ttl for all, and keep or do not keep a lease as they do by themselves. */
  acquire(key: string, wish: Wish): Promise<HeldLock>;
  /** With the ttl of the service; where locks can be detached. */
  adopt?(parcel: LockParcel): Promise<HeldLock>;
  /** The locks of all keys, or none; not of peers. */
  acquireAll?(keys: string[], wish: Wish): Promise<HeldSet>;
  /** Takes a lock away from whoever has it, if anybody does; peers cannot. */
  forceRelease?(key: string): Promise<boolean>;
  /** Takes part in an election, and calls the work in each term; peers have none. */
  campaign?(key: string, ttlMs: number, work: (term: LeaderTerm) => Promise<void>): void;
  close(): unknown;
}

export interface OpenTerms {
  contestant: ContestantId;
  store: Topology['store'];
  ports: number[];
  ttlMs: number;
  waitMs: number;
  commandTimeoutMs: number;
  /** Folder of the contestants of the benchmark. */
  peers: string;
  /** Name of the mutant that the library is. */
  mutant?: string;
  /** Further options of the library. */
  options: RedisLockSettings;
}

export function openContestant(terms: OpenTerms): Promise<Contestant> {
  return terms.contestant === 'library' ? openLibrary(terms) : openPeer(terms);
}

async function openLibrary({ mutant, ports, options, store, ...terms }: OpenTerms): Promise<Contestant> {
  await import('reflect-metadata');
  const library = await import('./library.js');
  if (mutant !== undefined) ALL_MUTANTS[mutant]!.inject?.(library);
  const { composeSqlLocks, guardStatement, openLocks, validityMs } = library;
  const { ttlMs, waitMs, commandTimeoutMs } = terms;
  const settings = { ttlMs, waitMs, commandTimeoutMs, lazyConnect: true, ...options };
  const urls = ports.map((port) => `redis://127.0.0.1:${port}`);
  const servers = process.env.REDIS_CLIENT === 'node-redis' ? urls.map((url) => ({ url })) : urls;
  const source = servers.length === 1 ? { redis: servers[0]! } : { redlock: servers };
  const postgres = `postgres://postgres@127.0.0.1:${ports[0]}/postgres`;
  const mysql = `mysql://app@127.0.0.1:${ports[0]}/shop`;
  const database = store === 'mariadb' ? { mysql } : { postgres };
  const { service } =
    store === 'redis'
      ? await openLocks({ ...settings, ...source } as RedisLockModuleOptions)
      : await composeSqlLocks({ ...settings, ...database, createTable: true } as SqlLockModuleOptions).open();
  const countedIn = { redis: undefined, postgres: inPostgres, mariadb: inMariaDb }[store];
  const granted = (held: Held, { ttlMs }: Wish): HeldLock => {
    const lock = held as Lock; // nobody guards, downgrades or detaches permits
    return {
      ...justGranted(held, validityMs(ttlMs, 0)),
      guard: () => guardStatement(lock),
      downgrade: async () => granted(await lock.downgrade(), { ttlMs }),
      detach: (standsMs) => lock.detach({ ttlMs: standsMs }),
    };
  };
  const isOne = ports.length === 1;
  return {
    counters: countedIn && new Counters(countedIn(store === 'mariadb' ? mysql : postgres)),
    hasModes: isOne && store === 'redis',
    async acquire(key, wish) {
      return granted(await (wantsPermits(wish) ? service.acquirePermits(key, wish) : service.acquire(key, wish)), wish);
    },
    async acquireAll(keys, wish) {
      const set = await service.acquireAll(keys, wish);
      return {
        get: (key) => granted(set.get(key), wish),
        release: () => set.release(),
      };
    },
    adopt: isOne ? async (parcel) => granted(await service.adopt(parcel), { ttlMs }) : undefined,
    campaign(key, ttlMs, work) {
      const leader = service.leader(key, { ttlMs });
      let askedAt = nowMs();
      leader.state$.subscribe(({ status }) => {
        if (status === 'campaigning') askedAt = nowMs();
      });
      service.whileLeader(key, { ttlMs }, ({ signal }) => {
        const lock = granted(service.current(key), { ttlMs });
        return work({ lock, askedAt, signal, resign: () => leader.resign() });
      });
    },
    forceRelease: (key) => service.forceRelease(key),
    close: () => service.onApplicationShutdown(),
  };
}

/** A lock that was handed over a moment ago stands on a grant that may be older than its deadline tells. */
function justGranted(lock: Held, validMs: number): HeldLock {
  const { provisionalTtlMs, sentAt } = (lock as LockHandle).lease;
  return {
    ...heldByLibrary(lock),
    sentAt: nowMs() + (provisionalTtlMs === undefined ? leaseLeftMs(lock) - validMs : sentAt - performance.now()),
    grantMs: provisionalTtlMs,
  };
}

function heldByLibrary(lock: Held): HeldLock {
  return {
    token: tokenOf(lock),
    owner: lock.owner,
    isHeld: () => lock.isHeld,
    until: () => deadlineOf(lock),
    onLost: (tell) => (lock.signal.aborted ? tell() : lock.signal.addEventListener('abort', tell)),
    hasOverstayed: () => hasOverstayed(lock),
    release: () => lock.release(),
  };
}

function deadlineOf(lock: Held): number {
  const now = nowMs();
  return now + lock.remainingMs;
}

/** Of the two peers: an expiration by the wall clock, and a flag. */
interface PeerLock {
  expiration?: number;
  isAcquired?: boolean;
}

interface Peer {
  acquire(key: string): Promise<PeerLock>;
  release(lock: PeerLock): Promise<unknown>;
  close(): unknown;
}

async function openPeer({ contestant, peers, ports, ttlMs, waitMs }: OpenTerms): Promise<Contestant> {
  const { open } = (await import(pathToFileURL(`${peers}/${contestant}.mjs`).href)) as {
    open(terms: object): Promise<Peer>;
  };
  // redlock 5 knows no time limit, only a number of attempts: by default about 2 s.
  const peer = await open({ ports, ttlMs, waitMs: contestant === 'redlock-5' ? 0 : waitMs });
  return {
    async acquire(key) {
      const lock = await peer.acquire(key);
      return {
        isHeld: () => (lock.expiration === undefined ? lock.isAcquired === true : Date.now() < lock.expiration),
        until: () => (lock.expiration === undefined ? undefined : nowMs() + lock.expiration - Date.now()),
        onLost: () => {},
        release: () => peer.release(lock),
      };
    },
    close: () => peer.close(),
  };
}
