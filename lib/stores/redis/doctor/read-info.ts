import { infoFields } from '../client/server-identity.js';
import type { ExaminedNode, ServerName } from './diagnosis.js';

type Fields = ReadonlyMap<string, string>;

/** Reads the answer to INFO into a diagnosis. */
export function readInfo(text: string): Partial<ExaminedNode> {
  const info = infoFields(text);
  const number = (name: string): number | undefined => {
    const value = info.get(name);
    return value === undefined || value === '' || !Number.isFinite(Number(value)) ? undefined : Number(value);
  };
  const flag = (name: string): boolean | undefined => (info.has(name) ? info.get(name) === '1' : undefined);
  const role = info.get('role');
  const activeReplica = role === 'active-replica';
  const isReplica = role === 'slave' || role === 'replica' || activeReplica;
  const named = nameOf(info);
  const appendOnly = flag('aof_enabled') ?? otherAppendOnly(info, named.server);
  return {
    ...named,
    runId: info.get('run_id'),
    role: isReplica ? 'replica' : role === 'master' ? 'master' : undefined,
    replicaOf: isReplica ? `${info.get('master_host')}:${info.get('master_port')}` : undefined,
    ...(activeReplica && { activeReplica }),
    replicationId: replicationIdOf(info),
    replicas: number('connected_slaves'),
    readOnly: role === undefined ? undefined : isReplica && info.get('slave_read_only') !== '0',
    cluster: flag('cluster_enabled'),
    evictionPolicy: info.get('maxmemory_policy'),
    maxMemoryBytes: number('maxmemory'),
    persistence: appendOnly === undefined ? undefined : { appendOnly },
  };
}

/** The version fields of servers other than Redis. These also have a `redis_version` for compatibility. */
const OWN_VERSION: readonly (readonly [field: string, server: ServerName])[] = [
  ['valkey_version', 'Valkey'],
  ['redict_version', 'Redict'],
  ['dragonfly_version', 'Dragonfly'],
  ['garnet_version', 'Garnet'],
];

function nameOf(info: Fields): Pick<ExaminedNode, 'server' | 'version'> {
  for (const [field, server] of OWN_VERSION) {
    const version = info.get(field);
    if (version !== undefined) return { server, version: version.replace(/^df-v/, '') }; // Dragonfly: df-v1.40.1
  }
  const version = info.get('redis_version');
  // KeyDB reports its version as `redis_version`. Only KeyDB has the field `mvcc_depth`.
  return version === undefined ? {} : { server: info.has('mvcc_depth') ? 'KeyDB' : 'Redis', version };
}

/** Whether a server without the field `aof_enabled` writes an append-only file; undefined if unknown. */
function otherAppendOnly(info: Fields, server: ServerName | undefined): boolean | undefined {
  if (server === 'Dragonfly') return false; // it only has snapshots
  const garnetBytes = info.get('aof_memory_size');
  return garnetBytes === undefined ? undefined : garnetBytes !== '-1';
}

/** Ignores zeros, which Garnet reports without replication. */
function replicationIdOf(info: Fields): string | undefined {
  const id = info.get('master_replid');
  return id !== undefined && /^0*$/.test(id) ? undefined : id;
}
