import type { ExaminedNode, RedisKind } from './diagnosis.js';

/** Describes where the locks are, such as `on one Redis`. */
export function whereOf(backend: RedisKind, nodes: readonly ExaminedNode[]): string {
  if (backend === 'redlock')
    return `on a Redlock of ${counted(nodes.length, 'node')}, ${Math.floor(nodes.length / 2) + 1} of which must vote for a lock`;
  return nodes.some((node) => node.isClusterClient) ? 'on a Cluster' : 'on one Redis';
}

/** Summarizes the state of a server. */
export function summaryOf(node: ExaminedNode): string {
  if (!node.reachable) return `not reachable (${node.problem})`;
  return [
    node.version && `${node.server} ${node.version}`,
    node.role === 'replica' ? `${node.activeReplica ? 'active ' : ''}replica of ${node.replicaOf}` : node.role,
    node.replicas !== undefined && counted(node.replicas, 'replica'),
    node.cluster && 'in a Cluster',
    node.evictionPolicy,
    node.persistence && persistence(node.persistence),
    node.clockOffsetMs !== undefined && clock(node.clockOffsetMs, node.clockToleranceMs ?? 0),
    ...node.notChecked.map((what) => `not checked: ${what}`),
  ]
    .filter(Boolean)
    .join(', ');
}

function persistence({ appendOnly, appendFsync, snapshots }: NonNullable<ExaminedNode['persistence']>): string {
  const kinds = [
    appendOnly && `append-only file${appendFsync === undefined ? '' : ` (fsync ${appendFsync})`}`,
    snapshots && 'snapshots',
  ].filter(Boolean);
  if (kinds.length > 0) return kinds.join(' and ');
  return snapshots === undefined ? 'no append-only file' : 'no persistence';
}

function clock(offsetMs: number, toleranceMs: number): string {
  return `clock ${offsetMs < 0 ? '' : '+'}${Math.round(offsetMs)} ms (± ${Math.ceil(toleranceMs)})`;
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}
