import { infoFields } from '../client/server-info.js';
import type { ExaminedNode } from './diagnosis.js';

/** Reads the answer to INFO into a diagnosis. */
export function readInfo(text: string): Partial<ExaminedNode> {
  const info = infoFields(text);
  const number = (name: string): number | undefined => {
    const value = info.get(name);
    return value === undefined || value === '' || !Number.isFinite(Number(value)) ? undefined : Number(value);
  };
  const flag = (name: string): boolean | undefined => (info.has(name) ? info.get(name) === '1' : undefined);
  const role = info.get('role');
  const isReplica = role === 'slave' || role === 'replica';
  const appendOnly = flag('aof_enabled');
  return {
    version: info.get('redis_version'),
    runId: info.get('run_id'),
    role: isReplica ? 'replica' : role === 'master' ? 'master' : undefined,
    replicaOf: isReplica ? `${info.get('master_host')}:${info.get('master_port')}` : undefined,
    replicationId: info.get('master_replid'),
    replicas: number('connected_slaves'),
    readOnly: role === undefined ? undefined : isReplica && info.get('slave_read_only') !== '0',
    cluster: flag('cluster_enabled'),
    evictionPolicy: info.get('maxmemory_policy'),
    maxMemoryBytes: number('maxmemory'),
    persistence: appendOnly === undefined ? undefined : { appendOnly },
  };
}
