import { printable } from '../../../api/printable.js';
import { found, type Findings } from '../../node/findings.js';
import type { OddCounter } from './counters.js';
import type { ExaminedNode, FindingCode, RedisFinding, RedisKind } from './diagnosis.js';

/** Larger differences between the clocks of nodes cause a finding, in milliseconds. */
const CLOCK_TOLERANCE_MS = 1_000;
/** Clocks are rarely set back by more than this, in milliseconds. If a counter is further ahead, another program probably wrote it. */
const FAR_AHEAD_MS = 86_400_000;
/** The first version with `SET … GET`. */
const OLDEST_VERSION = [6, 2] as const;

/** Returns the findings about these servers, errors first. */
export function findingsOf(backend: RedisKind, nodes: readonly ExaminedNode[]): RedisFinding[] {
  const useless = nodes.map((node) => found('error', CANNOT_GRANT, node.name, node));
  // A Redlock works without a minority of its nodes. A single server is always needed.
  const missing = useless.filter((reasons) => reasons.length > 0).length;
  const severity: RedisFinding['severity'] =
    backend === 'redis' || nodes.length - missing <= nodes.length / 2 ? 'error' : 'warning';
  const findings: RedisFinding[] = nodes.flatMap((node, index) => [
    ...useless[index]!.map((finding) => ({ ...finding, severity })),
    ...found('error', UNSAFE, node.name, node),
    ...found('warning', WARNINGS, node.name, { ...node, backend }),
  ]);
  if (backend === 'redlock') findings.push(...dependent(nodes));
  findings.push(...differingClocks(nodes));
  return findings.sort((a, b) => Number(b.severity === 'error') - Number(a.severity === 'error'));
}

/** Reasons why a server cannot grant locks or vote. */
const CANNOT_GRANT: Findings<ExaminedNode, FindingCode> = {
  unreachable: ({ reachable, problem }) =>
    !reachable && `cannot be reached: ${problem}. Start it, or correct the address, the credentials or the database.`,
  'read-only-replica': ({ readOnly, replicaOf }) =>
    readOnly &&
    `is a replica${replicaOf === undefined ? '' : ` of ${replicaOf}`} and refuses writes: it cannot grant locks. ` +
      'Name its master, or let Sentinel find the master.',
  'too-old': ({ server, version }) =>
    isTooOld({ server, version }) &&
    `runs ${server} ${version}: locks need ${server} ${OLDEST_VERSION.join('.')} or newer. Update it.`,
  'no-scripts': ({ refusesScripts }) =>
    refusesScripts !== undefined &&
    `does not run scripts (${refusesScripts}): no lock can be taken. Start Garnet with --lua and --lua-transaction-mode.`,
  'no-run-id': ({ needsAdmission, server, version, runId }) =>
    needsAdmission &&
    version !== undefined &&
    runId === undefined &&
    `is ${server}, whose INFO has no run_id, so a restart, after which it has forgotten its locks, would go unnoticed. ` +
      'Therefore it never votes. Use Redis or Valkey for the nodes of a Redlock.',
  'refuses-writes': ({ refusesWrites }) =>
    refusesWrites !== undefined && `refuses writes (${refusesWrites}): no lock can be taken until it accepts them.`,
  'too-few-replicas': ({ replicas = Infinity, awaitedReplicas = 0 }) =>
    replicas < awaitedReplicas &&
    `has ${replicas} replica(s), and each lock waits for ${awaitedReplicas} (waitForReplicas): no lock can be taken ` +
      'until that many follow it. Start them, or wait for fewer.',
  'round-trip': ({ roundTripMs = 0, commandTimeoutMs = Infinity }) =>
    roundTripMs >= commandTimeoutMs && tooFar(roundTripMs, commandTimeoutMs, 'no lock can be taken'),
};

/** Problems that let two callers hold the same lock. */
const UNSAFE: Findings<ExaminedNode, FindingCode> = {
  'wrong-database': ({ refusesDatabase }) =>
    refusesDatabase !== undefined &&
    `refuses the database of its client (${refusesDatabase}), which then uses another database, now or ` +
      'after a reconnect: other processes do not look for locks there. Give its user the right +select, or name a database that it has.',
  'active-replica': ({ activeReplica, replicaOf }) =>
    activeReplica &&
    `is an active replica of ${replicaOf}: both accept writes, and the newest write wins later, so two callers can ` +
      'hold the same lock. Set active-replica no, and name the master.',
  'writable-replica': ({ activeReplica, role, readOnly, replicaOf }) =>
    !activeReplica &&
    role === 'replica' &&
    readOnly === false &&
    `is a replica of ${replicaOf} that accepts writes: its master overwrites them, and locks disappear. ` +
      'Name the master, or make it one (REPLICAOF NO ONE).',
  'scripts-not-atomic': ({ server, refusesScripts }) =>
    server === 'Garnet' &&
    refusesScripts === undefined &&
    'is Garnet, which runs scripts as transactions only with --lua-transaction-mode, and does not report whether that is set. ' +
      'Without it, two callers can hold the same lock. Start Garnet with that option, or use Redis or Valkey.',
};

/** Problems that may cost locks, or traces of another program under the keys of locks. */
const WARNINGS: Findings<ExaminedNode & { backend: RedisKind }, FindingCode> = {
  eviction: ({ server, evictionPolicy, maxMemoryBytes }) =>
    evictionPolicy !== undefined &&
    evictionPolicy !== 'noeviction' &&
    `has the maxmemory-policy ${evictionPolicy}: ` +
      `${maxMemoryBytes === 0 ? 'once a maxmemory is set and reached' : 'when its memory is full'} it may evict locks, and then two callers can hold the same lock. ` +
      `${server === 'Dragonfly' ? 'Start it without --cache_mode' : 'Set noeviction'}, or give locks a Redis of their own.`,
  // A Redlock survives a node that loses its data if the node does not vote too soon. A replica gets its data from its master.
  'no-persistence': ({ backend, server, role, persistence }) =>
    backend === 'redis' && role === 'master' && persistence?.appendOnly === false && forgets(server, persistence),
  'cluster-mode': ({ cluster, isClusterClient }) =>
    cluster &&
    !isClusterClient &&
    'is part of a Cluster, but its client is not a Cluster client: locks in other slots cannot be taken. Give a Cluster client: new Cluster(nodes) of ioredis, or createCluster({ rootNodes }) of node-redis.',
  'round-trip': ({ roundTripMs = 0, commandTimeoutMs = Infinity }) =>
    roundTripMs < commandTimeoutMs &&
    2 * roundTripMs > commandTimeoutMs &&
    tooFar(roundTripMs, commandTimeoutMs, 'locks fail when it takes a little longer'),
  'counter-far-ahead': ({ oddCounters = [] }) =>
    farthest(
      oddCounters.filter(({ aheadMs = 0 }) => aheadMs > FAR_AHEAD_MS),
      'clocks are rarely set back that far, so another program probably wrote it. Find out who may write it. ' +
        'Locks work, and tokens continue from there. If you delete the counter, tokens restart at the time of the server: ' +
        'resources that have seen larger tokens refuse them until you reset their fences, too.',
    ),
  'counter-ahead': ({ oddCounters = [] }) =>
    farthest(
      oddCounters.filter(({ aheadMs = Infinity }) => aheadMs <= FAR_AHEAD_MS),
      'the clock was set back, or another program wrote it. Tokens still grow, but until the ' +
        'clock has caught up, each token costs Redis more, and a failover can repeat tokens. Let NTP correct the clock.',
    ),
  'counter-no-number': ({ oddCounters = [] }) => {
    const [first, ...others] = oddCounters.filter(({ aheadMs }) => aheadMs === undefined);
    return (
      first &&
      `has a fencing counter ${counted(first.key, 1 + others.length)} that is not a number: another program ` +
        'wrote it. If it is a string, the next lock replaces it with the time of the server; any other type makes all locks fail. Delete it.'
    );
  },
  'not-checked': ({ reachable, version, notChecked }) =>
    reachable &&
    version === undefined &&
    `could not be checked for its version, role, persistence and eviction policy${notChecked.length > 0 ? ` (${notChecked.join('; ')})` : ''}: ` +
      'the right +info is needed for that.',
};

/** Checks only Redis and KeyDB: all versions of the other servers have the needed commands. */
function isTooOld({ server, version = '' }: Pick<ExaminedNode, 'server' | 'version'>): boolean {
  if (server !== 'Redis' && server !== 'KeyDB') return false;
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < OLDEST_VERSION[0] || (major === OLDEST_VERSION[0] && minor < OLDEST_VERSION[1]);
}

/** Recommends three round trips: a new script takes two, and busy servers or processes need more time. */
function tooFar(roundTripMs: number, commandTimeoutMs: number, consequence: string): string {
  const enoughMs = Math.ceil((3 * roundTripMs) / 10) * 10;
  return (
    `takes ${Math.ceil(roundTripMs)} ms to answer, and commandTimeoutMs allows ${commandTimeoutMs} ms: ${consequence}. ` +
    `Set commandTimeoutMs to ${enoughMs} or more.`
  );
}

function forgets(
  server: ExaminedNode['server'],
  { snapshots }: NonNullable<ExaminedNode['persistence']>,
): string | false {
  if (server === 'Dragonfly') {
    return (
      'is Dragonfly, which has no append-only file: after a crash all locks since its last snapshot are gone, and others can ' +
      'take them before their holders notice. Use Redis or Valkey with appendonly yes where that matters.'
    );
  }
  return (
    snapshots === false &&
    'keeps nothing on disk: when it restarts all locks are gone, and others can take them before their holders notice. ' +
      (server === 'Garnet' ? 'Start it with --aof and --recover.' : 'Set appendonly yes.')
  );
}

function farthest(ahead: readonly OddCounter[], consequence: string): string | undefined {
  if (ahead.length === 0) return undefined;
  const worst = ahead.reduce((a, b) => (b.aheadMs! > a.aheadMs! ? b : a));
  return `has the fencing counter ${counted(worst.key, ahead.length)} ${worst.aheadMs} ms ahead of its clock: ${consequence}`;
}

function counted(key: string, count: number): string {
  return count === 1 ? printable(key) : `${printable(key)} (and ${count - 1} more)`;
}

/** Finds nodes of a Redlock that fail together, or whose vote counts twice. */
function dependent(nodes: readonly ExaminedNode[]): RedisFinding[] {
  return nodes.flatMap((node, index) =>
    nodes.slice(0, index).flatMap((earlier): RedisFinding[] => {
      if (isSame(earlier.runId, node.runId)) {
        const message =
          `${earlier.name} and ${node.name} are the same server (run_id ${node.runId}): its vote would count twice, ` +
          'and two callers could hold the same lock. redlock needs independent masters.';
        return [{ severity: 'error', code: 'same-server', message }];
      }
      const [replica, master] = node.role === 'replica' ? [node, earlier] : [earlier, node];
      const isOf = replica.role === 'replica' && replica.replicaOf === master.name;
      if (!isOf && !isSame(earlier.replicationId, node.replicationId)) return [];
      const related =
        master.role === 'replica' && !isOf
          ? `${earlier.name} and ${node.name} are replicas of the same master`
          : `${replica.name} is a replica of ${master.name}`;
      const message = `${related}: they fail together. redlock needs independent masters.`;
      return [{ severity: 'error', code: 'not-independent', message }];
    }),
  );
}

function isSame(one: string | undefined, other: string | undefined): boolean {
  return one !== undefined && one === other;
}

function differingClocks(nodes: readonly ExaminedNode[]): RedisFinding[] {
  const clocks = nodes
    .filter((node) => node.clockOffsetMs !== undefined)
    .map(({ name, clockOffsetMs = 0, clockToleranceMs = 0 }) => ({
      name,
      earliest: clockOffsetMs - clockToleranceMs,
      latest: clockOffsetMs + clockToleranceMs,
    }));
  if (clocks.length < 2) return [];
  const ahead = clocks.reduce((a, b) => (b.earliest > a.earliest ? b : a));
  const behind = clocks.reduce((a, b) => (b.latest < a.latest ? b : a));
  const apartMs = Math.round(ahead.earliest - behind.latest);
  if (apartMs <= CLOCK_TOLERANCE_MS) return [];
  const message =
    `The clock of ${ahead.name} is at least ${apartMs} ms ahead of the clock of ${behind.name}. Locks do not compare clocks, but ` +
    'a clock that jumps when it is corrected ends leases early, and then two callers can hold the same lock. If most clocks ' +
    'differ by more than two seconds, each acquisition needs a second round trip for its fencing token. ' +
    'Let NTP keep the clocks in step.';
  return [{ severity: 'warning', code: 'clocks-differ', message }];
}
