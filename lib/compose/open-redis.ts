import { LockOptionsError } from '../api/errors.js';
import type { RedisSource } from '../stores/redis/client/source.js';
import { commandTimeoutOf } from '../stores/redis/options.js';
import { processName } from './process-name.js';
import { resolveOptions, type RedisLockSettings, type ResolvedOptions } from './redis-lock-options.js';
import type { LockBackend } from '../core/backend/lock-backend.js';
import { monotonic } from '../core/time/clock.js';
import { Doctor } from '../stores/redis/doctor/doctor.js';
import type { RedisKind } from '../stores/redis/doctor/diagnosis.js';
import { NodeProbe } from '../stores/redis/doctor/probe.js';
import { RedisConnection } from '../stores/redis/client/redis-connection.js';
import { RedisNode, type NodeSettings } from '../stores/redis/node/redis-node.js';
import { RedlockNode } from '../stores/redis/redlock/redlock-node.js';
import { RedlockBackend } from '../stores/redis/redlock/redlock.backend.js';
import { ReplicaWait } from '../stores/redis/replicas/replica-wait.js';
import { Proposals } from '../stores/redis/redlock/proposals.js';
import { AdmissionCheck } from '../stores/redis/redlock/admission.js';
import { Initialisation } from '../stores/redis/redlock/initialisation.js';
import { SingleNodeBackend } from '../stores/redis/single/single-node.backend.js';

/** How long a node of a new Redlock may take to answer what it is asked, in milliseconds. */
const LOOK_TIMEOUT_MS = 10_000;

/** Locks on one Redis server, one Sentinel-managed master, or one Cluster. */
export async function openRedis(
  source: RedisSource,
  options: ResolvedOptions,
  now: () => number,
  processName: string,
): Promise<LockBackend> {
  const { keyPrefix, waitForReplicas } = options;
  const commandTimeoutMs = commandTimeoutOf('redis', options);
  const settings = {
    keyPrefix,
    commandTimeoutMs,
    processName,
    handsOver: true,
    awaitedReplicas: waitForReplicas?.count ?? 0,
    needsAdmission: false,
    now,
  };
  const [node] = await openNodes([source], settings, clientName(options));
  const problem = unfit(node!);
  if (problem !== undefined) {
    await node!.close();
    throw new LockOptionsError(problem);
  }
  const replicas = waitForReplicas && new ReplicaWait(node!.connection, settings, waitForReplicas);
  return new SingleNodeBackend(node!, commandTimeoutMs, now, replicas, reportOf('redis', [node!], settings));
}

/** Locks on the majority of several masters. */
export async function openRedlock(
  sources: RedisSource[],
  options: ResolvedOptions,
  now: () => number,
  processName: string,
): Promise<LockBackend> {
  const { ttlMs, admission } = options;
  const { nodes, settings } = await openRedlockNodes(sources, options, now, processName);
  const { commandTimeoutMs: nodeTimeoutMs } = settings;
  const longest = { ms: ttlMs };
  const proposals = new Proposals();
  const checkOf = (node: RedisNode, at: number) =>
    new AdmissionCheck({ node, at, longest, timeoutMs: nodeTimeoutMs, now, proposals });
  const checks = admission ? nodes.map(checkOf) : [];
  for (const check of checks) check.join(checks);
  return new RedlockBackend({
    nodes: nodes.map((node, at) => new RedlockNode(node, at, checks[at])),
    nodeTimeoutMs,
    now,
    proposals,
    report: reportOf('redlock', nodes, settings),
    longestHoldMs: ttlMs,
  });
}

/** Opens the nodes of a new Redlock, which an operator lets vote at once. @throws LockOptionsError */
export async function openNewRedlock(
  redlock: RedisSource[],
  given: Pick<RedisLockSettings, 'keyPrefix' | 'connectTimeoutMs'>,
): Promise<Initialisation> {
  const options = resolveOptions({ redlock, commandTimeoutMs: LOOK_TIMEOUT_MS, ...given });
  const { nodes, settings } = await openRedlockNodes(redlock, options, monotonic, processName());
  return new Initialisation({
    nodes,
    keyPrefix: options.keyPrefix,
    connectTimeoutMs: options.connectTimeoutMs,
    timeoutMs: LOOK_TIMEOUT_MS,
    report: reportOf('redlock', nodes, settings),
  });
}

async function openRedlockNodes(
  sources: RedisSource[],
  options: ResolvedOptions,
  now: () => number,
  processName: string,
): Promise<{ nodes: RedisNode[]; settings: NodeSettings }> {
  const settings = {
    keyPrefix: options.keyPrefix,
    commandTimeoutMs: commandTimeoutOf('redlock', options),
    processName,
    handsOver: false,
    awaitedReplicas: 0,
    needsAdmission: options.admission,
    now,
  };
  const nodes = await openNodes(sources, settings, clientName(options));
  const problem = unfitTogether(nodes, options);
  if (problem === undefined) return { nodes, settings };
  await Promise.all(nodes.map((node) => node.close()));
  throw new LockOptionsError(problem);
}

/** Makes the report of a backend: each server is checked for its use. */
function reportOf(kind: RedisKind, nodes: readonly RedisNode[], settings: NodeSettings): LockBackend['report'] {
  const doctor = new Doctor(
    kind,
    nodes.map(({ connection }) => new NodeProbe(connection, settings)),
  );
  return (timeoutMs) => doctor.report(timeoutMs);
}

/** A brace in the client's prefix begins the hash tag of every key, unless it ends one: the keys of a lock must share theirs. */
function unfit({ connection: { client } }: RedisNode): string | undefined {
  const { isCluster, keyPrefix } = client;
  if (!isCluster || !keyPrefix.includes('{') || /^[^{]*\{[^}]+\}/.test(keyPrefix)) return undefined;
  return `The keyPrefix of the Cluster client must have no brace, or a whole hash tag: got ${JSON.stringify(keyPrefix)}.`;
}

function unfitTogether(nodes: readonly RedisNode[], { admission }: ResolvedOptions): string | undefined {
  const problem = nodes.map(unfit).find((found) => found !== undefined);
  if (problem !== undefined) return problem;
  const twice = nodes.find(({ name }, index) => nodes.findIndex((node) => node.name === name) < index);
  if (twice) return `redlock needs independent masters: got ${twice.name} twice.`;
  if (admission && nodes.some(({ connection }) => connection.client.isCluster)) {
    return 'redlock needs single servers: got a Cluster, which does not show when one of its servers has restarted. Set admission: false to use it anyway.';
  }
  return undefined;
}

/** The name of connections in `CLIENT LIST`, for which Redis takes visible ASCII characters only. */
function clientName({ registration }: ResolvedOptions): string {
  return `nest-redis-lock:${registration.replace(/[^!-~]/g, '_')}`;
}

async function openNodes(sources: RedisSource[], settings: NodeSettings, name: string): Promise<RedisNode[]> {
  const opening = await Promise.allSettled(
    sources.map((source) => RedisConnection.open(source, name, settings.commandTimeoutMs)),
  );
  const connections = opening.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const failure = opening.find((result) => result.status === 'rejected');
  if (failure) {
    for (const connection of connections) connection.close();
    throw failure.reason;
  }
  return connections.map((connection) => new RedisNode(connection, settings));
}
