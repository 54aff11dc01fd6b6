import type { LockDiagnosis, NodeDiagnosis } from './diagnosis.js';

/** A diagnosis as one block of text, for a log: a line for each server, then one for each finding. */
export function formatDiagnosis({ connection, backend, nodes, findings }: LockDiagnosis): string {
  return [
    `Locks of "${connection}", ${heading(backend, nodes)}`,
    ...nodes.map((node) => `  ${node.name}: ${describe(node)}`),
    ...findings.map(({ severity, message }) => `  ${severity}: ${message}`),
  ].join('\n');
}

function heading(backend: LockDiagnosis['backend'], nodes: readonly NodeDiagnosis[]): string {
  if (backend === 'memory') return 'in the memory of this process.';
  if (backend === 'redlock') return `on a Redlock of ${counted(nodes.length, 'node')}:`;
  return nodes.some((node) => node.isClusterClient) ? 'on a Cluster:' : 'on one Redis:';
}

function describe(node: NodeDiagnosis): string {
  if (!node.reachable) return `not reachable (${node.problem})`;
  return [
    node.version && `Redis ${node.version}`,
    node.role === 'replica' ? `replica of ${node.replicaOf}` : node.role,
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

function persistence({ appendOnly, appendFsync, snapshots }: NonNullable<NodeDiagnosis['persistence']>): string {
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
