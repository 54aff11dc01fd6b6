import type { Finding, NodeReport } from '../../../api/diagnosis.js';
import type { OddCounter } from './counters.js';

/** Servers that speak the protocol of Redis. A server that does not name itself counts as Redis. */
export type ServerName = 'Redis' | 'Valkey' | 'Redict' | 'Dragonfly' | 'KeyDB' | 'Garnet';

/** The state of one Redis server. A field is `undefined` if it could not be checked: `notChecked` gives the reasons. */
export interface NodeDiagnosis extends NodeReport {
  /** `host:port`, the path of a socket, or the name of a Sentinel master. A Cluster has one diagnosis for each master. */
  name: string;
  /** Whether it answered. If not, only `name`, `problem` and `summary` are set. */
  reachable: boolean;
  /** The kind of server, as it names itself. */
  server?: ServerName;
  /** Its own version, such as `7.0.15`, and not the compatible version of Redis. */
  version?: string;
  /** Changes with each start of the server. Two nodes with the same value are one server. */
  runId?: string;
  role?: 'master' | 'replica';
  /** `host:port` of its master. */
  replicaOf?: string;
  /** Identifies its replication history: a master and its replicas have the same value. */
  replicationId?: string;
  /** The number of connected replicas. */
  replicas?: number;
  /** The number of replicas that each lock waits for (`waitForReplicas`). */
  awaitedReplicas?: number;
  /** It is a replica that refuses writes. */
  readOnly?: boolean;
  /** It and its master both accept writes, and each sends them to the other (KeyDB). */
  activeReplica?: boolean;
  /** It is part of a Redis Cluster. */
  cluster?: boolean;
  /** Whether its client is a Cluster client. */
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
  /** How far its clock is ahead of the clock of this process, in milliseconds. */
  clockOffsetMs?: number;
  /** The error bound of `clockOffsetMs`: half of the round trip, in milliseconds. */
  clockToleranceMs?: number;
  /** The time of a round trip, including the network, in milliseconds. */
  roundTripMs?: number;
  /** The time limit of a command, in milliseconds: `commandTimeoutMs` or its default. */
  commandTimeoutMs?: number;
  /** The error with which it refuses writes, such as `OOM` when its memory is full, or `MISCONF`. */
  refusesWrites?: string;
  /** The error with which it refuses scripts. */
  refusesScripts?: string;
  /** Whether it votes only after admission (`admission` of a Redlock), which needs a `runId`. */
  needsAdmission?: boolean;
  /** The error with which it refuses the database of its client. */
  refusesDatabase?: string;
  /** Fencing counters that are not numbers or are more than a second ahead of its clock, if any. */
  oddCounters?: OddCounter[];
  /** Checks that were not possible, and the reasons. */
  notChecked: string[];
}

/** The state of a server before its summary is written. */
export type ExaminedNode = Omit<NodeDiagnosis, 'summary'>;

/** How the servers keep locks: one alone, or a majority of several. */
export type RedisKind = 'redis' | 'redlock';

/** A stable code for a finding about Redis servers, for programs to match on. */
export type FindingCode =
  /** Two nodes of a Redlock are one server. */
  | 'same-server'
  /** A node of a Redlock is a replica of another node, or of the same master. */
  | 'not-independent'
  /** A replica that takes writes, which its master overwrites. */
  | 'writable-replica'
  /** A replica and its master both accept writes (KeyDB with `active-replica`). */
  | 'active-replica'
  /** A server that runs scripts as transactions only with a setting that it does not report (Garnet). */
  | 'scripts-not-atomic'
  /** The client uses another database than the configured one. */
  | 'wrong-database'
  | 'read-only-replica'
  | 'unreachable'
  | 'too-old'
  | 'refuses-writes'
  /** Scripts are disabled. */
  | 'no-scripts'
  /** A node of a Redlock that does not report restarts, and therefore never votes (Dragonfly). */
  | 'no-run-id'
  /** The server has fewer replicas than each lock waits for. */
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
  /** A fencing counter is not a number. */
  | 'counter-no-number'
  /** The server is part of a Cluster, but its client is not a Cluster client. */
  | 'cluster-mode'
  | 'not-checked';

/** A finding about Redis servers. */
export interface RedisFinding extends Finding {
  code: FindingCode;
}
