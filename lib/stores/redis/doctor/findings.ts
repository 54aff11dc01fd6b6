import { printable } from '../../../api/printable.js';
import type { OddCounter } from './counters.js';
import type { ExaminedNode, FindingCode, RedisFinding, RedisKind, ServerName } from './diagnosis.js';

/** The difference between clocks of nodes from which a finding is made, in milliseconds. */
const CLOCK_TOLERANCE_MS = 1_000;
/** Clocks are not set back by more than this, in milliseconds: a counter that is further ahead was probably written by another program. */
const FAR_AHEAD_MS = 86_400_000;
/** The first version with `SET … GET`. */
const OLDEST = [6, 2] as const;

type About = readonly [code: FindingCode, message: string];

/** The findings about these servers, errors first. */
export function findingsOf(backend: RedisKind, nodes: readonly ExaminedNode[]): RedisFinding[] {
  const useless = nodes.map((node) => uselessBecause(node));
  // A Redlock can do without a minority of its nodes; a single server is always needed.
  const missing = useless.filter((reasons) => reasons.length > 0).length;
  const severity = backend === 'redis' || nodes.length - missing <= nodes.length / 2 ? 'error' : 'warning';
  const findings = nodes.flatMap((node, index) => [
    ...useless[index]!.map((about) => found(severity, about, node)),
    ...unsafe(node).map((about) => found('error', about, node)),
    ...doubts(node, backend).map((about) => found('warning', about, node)),
  ]);
  if (backend === 'redlock') findings.push(...dependent(nodes).map((about) => found('error', about)));
  findings.push(...differingClocks(nodes).map((about) => found('warning', about)));
  return findings.sort((a, b) => Number(b.severity === 'error') - Number(a.severity === 'error'));
}

function found(severity: RedisFinding['severity'], [code, message]: About, node?: ExaminedNode): RedisFinding {
  return node ? { severity, code, node: node.name, message: `${node.name} ${message}` } : { severity, code, message };
}

/** Reasons why the server gives no lock, or no vote. */
function uselessBecause(node: ExaminedNode): About[] {
  if (!node.reachable) {
    return [
      [
        'unreachable',
        `cannot be reached: ${node.problem}. Start it, or correct the address, the credentials or the database.`,
      ],
    ];
  }
  const reasons: About[] = [];
  if (node.readOnly) {
    const of = node.replicaOf === undefined ? '' : ` of ${node.replicaOf}`;
    reasons.push([
      'read-only-replica',
      `is a replica${of} and refuses writes: it cannot grant locks. Name its master, or let Sentinel find the master.`,
    ]);
  }
  if (node.version !== undefined && isTooOld(node.version, node.server)) {
    const oldest = `${node.server} ${OLDEST.join('.')}`;
    reasons.push(['too-old', `runs ${node.server} ${node.version}: locks need ${oldest} or newer. Update it.`]);
  }
  if (node.refusesScripts !== undefined) {
    reasons.push([
      'no-scripts',
      `does not run scripts (${node.refusesScripts}): no lock can be taken. Start Garnet with --lua and --lua-transaction-mode.`,
    ]);
  }
  if (node.needsAdmission && node.version !== undefined && node.runId === undefined) {
    reasons.push([
      'no-run-id',
      `is ${node.server}, whose INFO has no run_id: a restart, after which it has forgotten its locks, would not show, ` +
        'and so it never votes. Use Redis or Valkey for the nodes of a Redlock.',
    ]);
  }
  if (node.refusesWrites !== undefined) {
    reasons.push([
      'refuses-writes',
      `refuses writes (${node.refusesWrites}): no lock can be taken until it accepts them.`,
    ]);
  }
  const { replicas = Infinity, awaitedReplicas = 0 } = node;
  if (replicas < awaitedReplicas) {
    reasons.push([
      'too-few-replicas',
      `has ${replicas} replica(s), and each lock waits for ${awaitedReplicas} (waitForReplicas): no lock can be taken ` +
        'until so many follow it. Start them, or wait for fewer.',
    ]);
  }
  const { roundTripMs = 0, commandTimeoutMs = Infinity } = node;
  if (roundTripMs >= commandTimeoutMs) reasons.push(farAway(roundTripMs, commandTimeoutMs));
  return reasons;
}

/** A script that the server does not know yet takes two round trips, and any command longer when either side is busy. */
function farAway(roundTripMs: number, commandTimeoutMs: number): About {
  const consequence =
    roundTripMs >= commandTimeoutMs ? 'no lock can be taken' : 'locks fail when it takes a little longer';
  const enoughMs = Math.ceil((3 * roundTripMs) / 10) * 10;
  return [
    'round-trip',
    `takes ${Math.ceil(roundTripMs)} ms to answer, and has ${commandTimeoutMs} ms for it: ${consequence}. ` +
      `Set commandTimeoutMs to ${enoughMs} or more.`,
  ];
}

/** The versions of other servers than Redis and KeyDB are no measure: those began with all that is needed. */
function isTooOld(version: string, server: ServerName | undefined): boolean {
  if (server !== 'Redis' && server !== 'KeyDB') return false;
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]);
}

/** Problems that let two hold one lock. */
function unsafe(node: ExaminedNode): About[] {
  const about: About[] = [];
  if (node.refusesDatabase !== undefined) {
    const message =
      `refuses the database of its client (${node.refusesDatabase}), which then uses another one, now or after it ` +
      'reconnects: other processes do not look for locks there. Give its user the right +select, or name a database that it has.';
    about.push(['wrong-database', message]);
  }
  if (node.activeReplica) {
    const message =
      `is an active replica of ${node.replicaOf}: both accept writes, the newest of which wins later, and two callers can hold ` +
      'the same lock. Set active-replica no, and name the master.';
    about.push(['active-replica', message]);
  } else if (node.role === 'replica' && node.readOnly === false) {
    const message =
      `is a replica of ${node.replicaOf} that accepts writes: its master overwrites them, and locks disappear. ` +
      'Name the master, or make it one (REPLICAOF NO ONE).';
    about.push(['writable-replica', message]);
  }
  if (node.server === 'Garnet' && node.refusesScripts === undefined) {
    const message =
      'is Garnet, which runs scripts as transactions only with --lua-transaction-mode, and does not show whether it has that: ' +
      'without it two callers can hold the same lock. Start it with that, or use Redis or Valkey.';
    about.push(['scripts-not-atomic', message]);
  }
  return about;
}

function doubts(node: ExaminedNode, backend: RedisKind): About[] {
  if (!node.reachable) return [];
  const about: About[] = [];
  if (node.evictionPolicy !== undefined && node.evictionPolicy !== 'noeviction') {
    const when = node.maxMemoryBytes === 0 ? 'once a maxmemory is set and reached' : 'when its memory is full';
    const set = node.server === 'Dragonfly' ? 'Start it without --cache_mode' : 'Set noeviction';
    about.push([
      'eviction',
      `has the maxmemory-policy ${node.evictionPolicy}: ${when} it may evict locks, and then two callers can hold the same lock. ` +
        `${set}, or give locks a Redis of their own.`,
    ]);
  }
  const { appendOnly, snapshots } = node.persistence ?? {};
  // A Redlock survives a node that forgets, if that does not vote too soon; a replica has what its master has.
  if (backend === 'redis' && node.role === 'master' && appendOnly === false) {
    if (node.server === 'Dragonfly') {
      const message =
        'is Dragonfly, which has no append-only file: after a crash all locks since its last snapshot are gone, and others can ' +
        'take them before their holders notice. Use Redis or Valkey with appendonly yes where that matters.';
      about.push(['no-persistence', message]);
    } else if (snapshots === false) {
      const message =
        'keeps nothing on disk: when it restarts all locks are gone, and others can take them before their holders notice. ' +
        (node.server === 'Garnet' ? 'Start it with --aof and --recover.' : 'Set appendonly yes.');
      about.push(['no-persistence', message]);
    }
  }
  if (node.cluster && !node.isClusterClient) {
    about.push([
      'cluster-mode',
      'is part of a Cluster, but its client is not a Cluster client: locks in other slots cannot be taken. Give a client of it: new Cluster(nodes) of ioredis, or createCluster({ rootNodes }) of node-redis.',
    ]);
  }
  const { roundTripMs = 0, commandTimeoutMs = Infinity } = node;
  if (roundTripMs < commandTimeoutMs && 2 * roundTripMs > commandTimeoutMs) {
    about.push(farAway(roundTripMs, commandTimeoutMs));
  }
  about.push(...oddCounters(node));
  if (node.version === undefined) {
    const why = node.notChecked.join('; ');
    about.push([
      'not-checked',
      `could not be checked for its version, role, persistence and eviction policy${why && ` (${why})`}: ` +
        'the right +info is needed for that.',
    ]);
  }
  return about;
}

function oddCounters({ oddCounters: odd = [] }: ExaminedNode): About[] {
  const farAhead = odd.filter(({ aheadMs = 0 }) => aheadMs > FAR_AHEAD_MS);
  const ahead = odd.filter(({ aheadMs = Infinity }) => aheadMs <= FAR_AHEAD_MS);
  const others = odd.filter(({ aheadMs }) => aheadMs === undefined);
  const about: About[] = [];
  if (farAhead.length > 0) {
    const message =
      `${farthest(farAhead)}: clocks are rarely set back that far, so another program probably wrote it. Find out who may write it. ` +
      'Locks work, and tokens grow on from there. If you delete the counter, they begin again at the time of the server: ' +
      'resources that have seen the large ones refuse them until you reset their fences, too.';
    about.push(['counter-far-ahead', message]);
  }
  if (ahead.length > 0) {
    const message =
      `${farthest(ahead)}: the clock was set back, or another program wrote it. Tokens grow on, but until the ` +
      'clock has caught up each costs Redis more, and those that a failover loses can be given again. Let NTP keep the clock right.';
    about.push(['counter-ahead', message]);
  }
  if (others.length > 0) {
    const message =
      `has no number at ${counted(others[0]!.key, others.length)}, where a fencing counter should be: another program ` +
      'wrote it. A text is replaced by the time of the server; with anything else no lock can be taken. Delete it.';
    about.push(['counter-no-number', message]);
  }
  return about;
}

function farthest(ahead: readonly OddCounter[]): string {
  const most = ahead.reduce((a, b) => (b.aheadMs! > a.aheadMs! ? b : a));
  return `has the fencing counter ${counted(most.key, ahead.length)} ${most.aheadMs} ms ahead of its clock`;
}

function counted(key: string, count: number): string {
  return count === 1 ? printable(key) : `${printable(key)} (and ${count - 1} more)`;
}

/** Nodes of a Redlock that fail together, or whose vote counts twice. */
function dependent(nodes: readonly ExaminedNode[]): About[] {
  return nodes.flatMap((node, index) =>
    nodes.slice(0, index).flatMap((earlier): About[] => {
      if (isSame(earlier.runId, node.runId)) {
        const message =
          `${earlier.name} and ${node.name} are the same server (run_id ${node.runId}): its vote would count twice, ` +
          'and two callers could hold the same lock. redlock needs independent masters.';
        return [['same-server', message]];
      }
      const [replica, master] = node.role === 'replica' ? [node, earlier] : [earlier, node];
      const isOf = replica.role === 'replica' && replica.replicaOf === master.name;
      if (!isOf && !isSame(earlier.replicationId, node.replicationId)) return [];
      const related =
        master.role === 'replica' && !isOf
          ? `${earlier.name} and ${node.name} are replicas of the same master`
          : `${replica.name} is a replica of ${master.name}`;
      return [['not-independent', `${related}: they fail together. redlock needs independent masters.`]];
    }),
  );
}

function isSame(one: string | undefined, other: string | undefined): boolean {
  return one !== undefined && one === other;
}

function differingClocks(nodes: readonly ExaminedNode[]): About[] {
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
    `The clock of ${ahead.name} is at least ${apartMs} ms ahead of that of ${behind.name}. Locks do not compare clocks, but ` +
    'one that jumps when it is corrected ends leases early, and then two callers can hold the same lock. With more than ' +
    'two seconds between most clocks each acquisition takes a second round trip for its fencing token. ' +
    'Let NTP keep them in step.';
  return [['clocks-differ', message]];
}
