import type { NodeDiagnosis } from './diagnosis.js';

/** Reads the answer to INFO: lines `name:value` in sections. */
export function readInfo(text: string): Partial<NodeDiagnosis> {
  const info = new Map([...text.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name!, value!]));
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

/** The value of a setting in the answer to CONFIG GET: a list, or an object for clients that map RESP3 replies to those. */
export function settingOf(reply: unknown, name: string): string | undefined {
  const value: unknown = Array.isArray(reply)
    ? (reply as unknown[])[reply.indexOf(name) + 1]
    : (reply as Record<string, unknown> | null)?.[name];
  return typeof value === 'string' ? value : undefined;
}
