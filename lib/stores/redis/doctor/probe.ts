import { performance } from 'node:perf_hooks';
import type { ExaminedNode } from './diagnosis.js';
import { countersOf, LockKeys } from '../node/lock-keys.js';
import { findOddCounters } from './counters.js';
import { inTime } from '../../../core/time/time-limit.js';
import { refusesDatabase, type RedisClient } from '../client/redis-client.js';
import { ask, type Answer } from '../client/ask.js';
import type { RedisConnection } from '../client/redis-connection.js';
import { problemOf } from '../../node/problem-of.js';
import { settingOf } from '../client/server-identity.js';
import { readInfo } from './read-info.js';

/** How locks use a node, and the names of its keys and channels. */
export interface Usage {
  keyPrefix: string;
  processName: string;
  /** False for a node of a Redlock. */
  handsOver: boolean;
  /** Whether it is a node of a Redlock that votes only after admission. */
  needsAdmission: boolean;
  /** The number of replicas that each lock waits for. */
  awaitedReplicas: number;
  /** The time limit of a command, in milliseconds. */
  commandTimeoutMs: number;
}

/** The fraction of the remaining time that an optional step may take, so that the report is still in time. */
const MAX_STEP_FRACTION = 0.9;

/** Checks a Redis server, or each master of a Cluster, and changes nothing there. */
export class NodeProbe {
  /** Checks in flight. A server that hangs gets no second check. */
  readonly #open = new WeakMap<RedisClient, Promise<ExaminedNode>>();

  constructor(
    private readonly connection: RedisConnection,
    private readonly usage: Usage,
  ) {}

  /** Never rejects; settles within `timeoutMs`. */
  async run(timeoutMs: number): Promise<ExaminedNode[]> {
    const startedAt = performance.now();
    const { client, name } = this.connection;
    const problem = await this.connection.ready(timeoutMs);
    if (problem) return [this.#unreachable(name, problem.problem)];
    const leftMs = Math.max(1, timeoutMs - (performance.now() - startedAt));
    return Promise.all(client.topology.masters().map((master) => this.#checked(master, leftMs)));
  }

  #checked(client: RedisClient, timeoutMs: number): Promise<ExaminedNode> {
    let checking = this.#open.get(client);
    if (!checking) {
      checking = this.#check(client, timeoutMs).finally(() => this.#open.delete(client));
      this.#open.set(client, checking);
    }
    return inTime(checking, timeoutMs, () =>
      this.#unreachable(client.name, `no answer within ${Math.round(timeoutMs)} ms`),
    );
  }

  async #check(client: RedisClient, timeoutMs: number): Promise<ExaminedNode> {
    const { keyPrefix, processName, needsAdmission, awaitedReplicas, handsOver, commandTimeoutMs } = this.usage;
    const { isCluster } = this.connection.client.topology;
    // `call` does not put the key prefix of a Cluster before the keys of one of its masters.
    const prefix = client === this.connection.client ? '' : this.#clientPrefix;
    const keys = new LockKeys(keyPrefix, countersOf(handsOver, isCluster), this.#clientPrefix);
    const key = prefix + keys.lock(`doctor:${processName}`); // no lock has this key
    const endsAt = performance.now() + timeoutMs;
    try {
      // All at once, so that the check of a distant server is in time, too.
      const [clock, [info, save, fsync, write, script, select], odd] = await Promise.all([
        clockOf(client),
        ask(client, [
          ['INFO'],
          ['CONFIG', 'GET', 'save'],
          ['CONFIG', 'GET', 'appendfsync'],
          ['SET', key, '', 'PX', '1', 'XX'],
          ['EVAL', 'return 1', '1', key],
          ...this.#selection(client),
        ]),
        findOddCounters(client, this.#countersOf(client, keys)),
      ]);
      const roundTripMs = await this.#roundTripMs(client, clock, endsAt);
      const diagnosis: ExaminedNode = {
        name: client.name,
        reachable: true,
        isClusterClient: isCluster,
        notChecked: notChecked(info!, save!),
        ...(needsAdmission && { needsAdmission }),
        ...(awaitedReplicas > 0 && { awaitedReplicas }),
        ...('value' in info! ? readInfo(String(info.value)) : {}),
        ...clock,
        ...(roundTripMs !== undefined && { roundTripMs }),
        commandTimeoutMs,
        ...(odd.length > 0 && { oddCounters: odd }),
      };
      addPersistence(diagnosis, save!, fsync!);
      addRefusals(diagnosis, refusalIn(write), refusalIn(script), refusalIn(select));
      return diagnosis;
    } catch (error) {
      return this.#unreachable(client.name, problemOf(error)); // the connection broke
    }
  }

  /** Measures a long round trip twice: the process may have been busy, for example while starting. */
  async #roundTripMs(
    client: RedisClient,
    { clockToleranceMs }: ClockReading,
    endsAt: number,
  ): Promise<number | undefined> {
    if (clockToleranceMs === undefined) return undefined;
    const firstMs = rounded(2 * clockToleranceMs);
    const leftMs = (endsAt - performance.now()) * MAX_STEP_FRACTION;
    if (2 * firstMs <= this.usage.commandTimeoutMs || leftMs < 1) return firstMs;
    const second = await inTime<ClockReading>(clockOf(client), leftMs, () => ({}));
    return Math.min(firstMs, rounded(2 * (second.clockToleranceMs ?? Infinity)));
  }

  /** Selects the database of the client again: after a refusal ioredis continues in database 0. */
  #selection({ topology: { database } }: RedisClient): ['SELECT', string][] {
    // The nodes of a Cluster have only one database.
    return database === 0 || this.connection.client.topology.isCluster ? [] : [['SELECT', String(database)]];
  }

  /** Returns the keys of the fencing counters that a server may have, including the prefix of the client. */
  #countersOf({ name }: RedisClient, { fences }: LockKeys): string[] {
    const { topology } = this.connection.client;
    const here = topology.isCluster ? fences.filter((fence) => topology.routeOf(fence)[1] === name) : fences;
    return here.map((fence) => this.#clientPrefix + fence); // no client adds it to an argument
  }

  get #clientPrefix(): string {
    return this.connection.client.topology.keyPrefix;
  }

  #unreachable(name: string, problem: string): ExaminedNode {
    const { isCluster } = this.connection.client.topology;
    return { name, reachable: false, problem, isClusterClient: isCluster, notChecked: [] };
  }
}

type ClockReading = Pick<ExaminedNode, 'clockOffsetMs' | 'clockToleranceMs'>;

/** Measures how far the server's clock is ahead. The server read it at some moment during the round trip. */
async function clockOf(client: RedisClient): Promise<ClockReading> {
  const askedAt = performance.now();
  const asked = Date.now();
  const [answer] = await ask(client, [['TIME']]);
  const toleranceMs = (performance.now() - askedAt) / 2;
  if (!('value' in answer!) || !Array.isArray(answer.value)) return {};
  const [seconds, micros] = answer.value.map(Number);
  const offsetMs = seconds! * 1_000 + micros! / 1_000 - (asked + toleranceMs);
  return { clockOffsetMs: rounded(offsetMs), clockToleranceMs: rounded(toleranceMs) };
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

function addPersistence(diagnosis: ExaminedNode, save: Answer, fsync: Answer): void {
  const { persistence } = diagnosis;
  if (!persistence) return;
  const snapshots = 'value' in save ? settingOf(save.value, 'save') : undefined;
  const appendFsync = 'value' in fsync ? settingOf(fsync.value, 'appendfsync') : undefined;
  if (snapshots !== undefined) persistence.snapshots = snapshots !== '';
  if (appendFsync !== undefined) persistence.appendFsync = appendFsync;
}

/** Returns the checks that were not possible, with reasons. Few users may run CONFIG, because it also returns passwords. */
function notChecked(info: Answer, settings: Answer): string[] {
  const [ofInfo, ofSettings] = [refusalIn(info), refusalIn(settings)];
  const checks: string[] = [];
  if (ofInfo !== undefined) checks.push(`info: ${isForbidden(ofInfo) ? 'no right to it' : ofInfo}`);
  if (ofSettings !== undefined) {
    checks.push(
      isForbidden(ofSettings) ? 'snapshots and appendfsync: no right to config|get' : `config|get: ${ofSettings}`,
    );
  }
  return checks;
}

/** Records what refusals mean, according to the messages of Redis 6 to 8. Missing rights are left out: the first call that needs one names it. */
function addRefusals(diagnosis: ExaminedNode, write = '', script = '', select = ''): void {
  if (write.startsWith('READONLY')) {
    diagnosis.readOnly = true;
    diagnosis.role = 'replica';
  } else if (write !== '' && !/^(NOPERM|MOVED|ASK|CLUSTERDOWN) /.test(write)) {
    diagnosis.refusesWrites = write;
  }
  if (/scripting support disabled/i.test(script)) diagnosis.refusesScripts = script; // the message of Garnet
  if (refusesDatabase(select)) diagnosis.refusesDatabase = isForbidden(select) ? 'no right to SELECT' : select;
}

function refusalIn(answer: Answer | undefined): string | undefined {
  return answer && 'refusal' in answer ? answer.refusal : undefined;
}

/** Since Redis 7.2 this message contains the user name, which must not be shown. */
function isForbidden(refusal: string): boolean {
  return refusal.startsWith('NOPERM');
}
