import { LockOptionsError } from '../api/errors.js';
import type { RedisSource } from '../stores/redis/client/source.js';
import { commandTimeoutOf, type RedisServers } from '../stores/redis/options.js';
import { openClient } from './open-client.js';
import type { ResolvedOptions } from './redis-lock-options.js';
import type { LockBackend } from '../core/backend/lock-backend.js';
import { reportOn } from '../stores/redis/doctor/doctor.js';
import { NodeProbe } from '../stores/redis/doctor/probe.js';
import { RedisConnection } from '../stores/redis/client/redis-connection.js';
import { RedisNode, type NodeSettings } from '../stores/redis/node/redis-node.js';
import { RedlockNode } from '../stores/redis/redlock/redlock-node.js';
import { RedlockBackend } from '../stores/redis/redlock/redlock.backend.js';
import { ReplicaWait } from '../stores/redis/replicas/replica-wait.js';
import { Proposals } from '../stores/redis/redlock/proposals.js';
import { AdmissionCheck } from '../stores/redis/redlock/admission.js';

/** Opens locks on one Redis server, one Sentinel-managed master, or one Cluster. */
export async function openRedis(
  source: RedisSource,
  options: ResolvedOptions,
  now: () => number,
  processName: string,
): Promise<LockBackend> {
  const { connections, settings, report } = await connectionsTo('redis', [source], options, now, processName);
  const [connection] = connections as [RedisConnection];
  const { waitForReplicas } = options;
  const replicas = waitForReplicas && new ReplicaWait(connection, settings, waitForReplicas);
  return new RedisNode(connection, settings, { report, replicas });
}

/** Opens locks on the majority of several masters. */
export async function openRedlock(
  sources: RedisSource[],
  options: ResolvedOptions,
  now: () => number,
  processName: string,
): Promise<LockBackend> {
  const { ttlMs, admission } = options;
  const { connections, settings, report } = await connectionsTo('redlock', sources, options, now, processName);
  const nodes = connections.map((connection) => new RedisNode(connection, settings));
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
    report,
    longestMs: ttlMs,
  });
}

/** The servers of a backend. */
interface Connections {
  readonly connections: RedisConnection[];
  readonly settings: NodeSettings;
  /** Checks whether each server is suitable. */
  readonly report: LockBackend['report'];
}

/** Opens the clients of all servers, or of none. @throws LockOptionsError for servers that cannot be used */
async function connectionsTo(
  kind: RedisServers['kind'],
  sources: readonly RedisSource[],
  options: ResolvedOptions,
  now: () => number,
  processName: string,
): Promise<Connections> {
  const { keyPrefix, waitForReplicas, admission, lazyConnect, connectTimeoutMs } = options;
  const commandTimeoutMs = commandTimeoutOf(kind, options);
  const settings = {
    keyPrefix,
    commandTimeoutMs,
    processName,
    handsOver: kind === 'redis',
    awaitedReplicas: waitForReplicas?.count ?? 0,
    needsAdmission: kind === 'redlock' && admission,
    now,
  };
  const name = clientName(options);
  const opening = await Promise.allSettled(
    sources.map(async (source) => {
      const client = await openClient(source, name, lazyConnect ? undefined : connectTimeoutMs);
      return new RedisConnection(client, name, commandTimeoutMs);
    }),
  );
  const connections = opening.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const failed = opening.find((result) => result.status === 'rejected');
  const problem = unusableServers(connections, settings);
  if (failed || problem !== undefined) {
    for (const connection of connections) connection.close();
    throw failed ? failed.reason : new LockOptionsError(problem!);
  }
  const probes = connections.map((connection) => new NodeProbe(connection, settings));
  return { connections, settings, report: (timeoutMs) => reportOn(kind, probes, timeoutMs) };
}

/** Returns the reason why these servers cannot be used, or not together. */
function unusableServers(
  connections: readonly RedisConnection[],
  { needsAdmission }: NodeSettings,
): string | undefined {
  for (const { client } of connections) {
    const { isCluster, keyPrefix } = client.topology;
    // All keys of a lock need the same hash tag. A brace in the client's prefix would begin another one, unless the tag is complete.
    if (isCluster && keyPrefix.includes('{') && !/^[^{]*\{[^}]+\}/.test(keyPrefix))
      return `The keyPrefix of the Cluster client must have no braces, or a complete hash tag: got ${JSON.stringify(keyPrefix)}.`;
  }
  const names = connections.map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice !== undefined) return `redlock needs independent masters: got ${twice} twice.`;
  if (needsAdmission && connections.some(({ client }) => client.topology.isCluster)) {
    return 'redlock needs single servers: got a Cluster, which does not show when one of its servers has restarted. Set admission: false to use it anyway.';
  }
  return undefined;
}

/** Returns the name of connections in `CLIENT LIST`, which may have only visible ASCII characters. */
function clientName({ registration }: ResolvedOptions): string {
  return `nest-redis-lock:${registration.replace(/[^!-~]/g, '_')}`;
}
