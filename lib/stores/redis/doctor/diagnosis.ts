import type { Finding, NodeReport } from '../../../api/diagnosis.js';
import type { OddCounter } from './counters.js';

/** Servers that speak the protocol of Redis. One that does not name itself counts as Redis. */
export type ServerName = 'Redis' | 'Valkey' | 'Redict' | 'Dragonfly' | 'KeyDB' | 'Garnet';

/** The state of one Redis server. `undefined` stands for what could not be found out: `notChecked` says why. */
export interface NodeDiagnosis extends NodeReport {
  /** `host:port`, the path of a socket, or the name of a Sentinel master; in a Cluster one for each master. */
  name: string;
  /** Whether it answered. If not, all but `name`, `problem` and `summary` is empty. */
  reachable: boolean;
  /** The kind of server, by its own words. */
  server?: ServerName;
  /** Its own version, such as `7.0.15`, and not that of the Redis that it resembles. */
  version?: string;
  /** Changes with each start of the server: two nodes with the same one are one server. */
  runId?: string;
  role?: 'master' | 'replica';
  /** `host:port` of its master, as it knows it. */
  replicaOf?: string;
  /** The history of writes it follows: a master and its replicas have the same. */
  replicationId?: string;
  /** How many replicas follow it now. */
  replicas?: number;
  /** How many of them each lock waits for (`waitForReplicas`). */
  awaitedReplicas?: number;
  /** It is a replica that refuses writes. */
  readOnly?: boolean;
  /** It and its master both accept writes, and each sends them to the other (KeyDB). */
  activeReplica?: boolean;
  /** It is part of a Redis Cluster. */
  cluster?: boolean;
  /** The client that asks it is one for a Cluster. */
  isClusterClient: boolean;
  /** `maxmemory-policy`. */
  evictionPolicy?: string;
  /** `maxmemory` in bytes, 0 when it has no limit. */
  maxMemoryBytes?: number;
  persistence?: {
    /** It writes an append-only file. */
    appendOnly: boolean;
    /** When the append-only file is forced to disk: `always`, `everysec` or `no`. */
    appendFsync?: string;
    /** It writes snapshots from time to time. */
    snapshots?: boolean;
  };
  /** How far its clock is ahead of that of this process, in milliseconds. */
  clockOffsetMs?: number;
  /** By how much `clockOffsetMs` may be wrong: half of the time the answer took, in milliseconds. */
  clockToleranceMs?: number;
  /** How long it took to answer a command, the network included, in milliseconds. */
  roundTripMs?: number;
  /** How long it may take, in milliseconds: `commandTimeoutMs`, or its default. */
  commandTimeoutMs?: number;
  /** The error that it answers to writes, such as `OOM` when its memory is full, or `MISCONF`. */
  refusesWrites?: string;
  /** The error that it answers to scripts, such as that they are disabled. */
  refusesScripts?: string;
  /** It votes only when it is admitted (`admission` of a Redlock), for which it has to have a `runId`. */
  needsAdmission?: boolean;
  /** The error that it answers when its client selects its database. */
  refusesDatabase?: string;
  /** Fencing counters that are more than a second ahead of its clock, or no number, if there are any. */
  oddCounters?: OddCounter[];
  /** Checks that could not be made, and why. */
  notChecked: string[];
}

/** The state of a server before its summary is written. */
export type ExaminedNode = Omit<NodeDiagnosis, 'summary'>;

/** How the servers keep locks: one alone, or a majority of several. */
export type RedisKind = 'redis' | 'redlock';

/** The subject of a finding about Redis servers, for programs. */
export type FindingCode =
  /** Two nodes of a Redlock are one server. */
  | 'same-server'
  /** A node of a Redlock is a replica of another node, or of the same master. */
  | 'not-independent'
  /** A replica that takes writes, which its master overwrites. */
  | 'writable-replica'
  /** A replica and its master both accept writes (KeyDB with `active-replica`). */
  | 'active-replica'
  /** A server that runs scripts as transactions only with a setting that it does not show (Garnet). */
  | 'scripts-not-atomic'
  /** The client goes on in another database than the one it should use. */
  | 'wrong-database'
  | 'read-only-replica'
  | 'unreachable'
  | 'too-old'
  | 'refuses-writes'
  /** Scripts are disabled. */
  | 'no-scripts'
  /** A node of a Redlock that does not show when it has restarted, and therefore never votes (Dragonfly). */
  | 'no-run-id'
  /** Fewer replicas follow the server than each lock waits for. */
  | 'too-few-replicas'
  | 'eviction'
  | 'no-persistence'
  | 'clocks-differ'
  /** Two round trips take longer than a command may (`commandTimeoutMs`). */
  | 'round-trip'
  /** A fencing counter is more than a second ahead of the clock of its server. */
  | 'counter-ahead'
  /** A fencing counter is more than a day ahead of the clock of its server: another program probably wrote it. */
  | 'counter-far-ahead'
  /** There is something other than a number where a fencing counter should be. */
  | 'counter-no-number'
  /** The server is part of a Cluster, but its client is not a Cluster client. */
  | 'cluster-mode'
  | 'not-checked';

/** A finding about servers of Redis. */
export interface RedisFinding extends Finding {
  code: FindingCode;
}
