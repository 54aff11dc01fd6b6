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

/** The use of a node, and the names of its keys and channels. */
export interface Usage {
  keyPrefix: string;
  processName: string;
  /** Whether locks are kept on it alone; if not, it is a node of a Redlock. */
  handsOver: boolean;
  /** Whether it votes only when it is admitted, as a node of a Redlock. */
  needsAdmission: boolean;
  /** How many replicas each lock waits for. */
  awaitedReplicas: number;
  /** How long a command may take, in milliseconds. */
  commandTimeoutMs: number;
}

/** The part of the time that a step may take which can be done without: the rest is still reported in time. */
const MAX_STEP_FRACTION = 0.9;

/** Checks a Redis server, or each master of a Cluster, and changes nothing there. */
export class NodeProbe {
  /** Checks in flight: a server that hangs gets no second one. */
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
    const key = prefix + keys.lock(`doctor:${processName}`); // nobody has it
    const endsAt = performance.now() + timeoutMs;
    try {
      // All at once, so that a server that is far away is checked in time, too.
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

  /** Measures a round trip that seems too long again: the process may have been busy, as it is while it starts. */
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

  /** Selects the database that the client believes to be in: ioredis reports a refusal, and goes on in database 0. */
  #selection({ topology: { database } }: RedisClient): ['SELECT', string][] {
    // The nodes of a Cluster have only one.
    return database === 0 || this.connection.client.topology.isCluster ? [] : [['SELECT', String(database)]];
  }

  /** The keys of the fencing counters that a server may have, as it knows them. */
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

/** Measures how far the server's clock is ahead: it was read at some moment between the question and the answer. */
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

/** What could not be checked, and why. CONFIG shows all settings of the server, its passwords included: few users may read it. */
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

/** Notes the meaning of refusals, by the messages of Redis 6 to 8. A right that is missing is named by the first call that needs it. */
function addRefusals(diagnosis: ExaminedNode, write = '', script = '', select = ''): void {
  if (write.startsWith('READONLY')) {
    diagnosis.readOnly = true;
    diagnosis.role = 'replica';
  } else if (write !== '' && !/^(NOPERM|MOVED|ASK|CLUSTERDOWN) /.test(write)) {
    diagnosis.refusesWrites = write;
  }
  if (/scripting support disabled/i.test(script)) diagnosis.refusesScripts = script; // in the words of Garnet
  if (refusesDatabase(select)) diagnosis.refusesDatabase = isForbidden(select) ? 'no right to SELECT' : select;
}

function refusalIn(answer: Answer | undefined): string | undefined {
  return answer && 'refusal' in answer ? answer.refusal : undefined;
}

/** From Redis 7.2 on its message repeats the name of the user, which is not shown. */
function isForbidden(refusal: string): boolean {
  return refusal.startsWith('NOPERM');
}
