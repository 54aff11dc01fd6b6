import type { NodeDiagnosis } from '../doctor/diagnosis.js';

/** The fields in the answer to INFO: lines `name:value` in sections. */
export function infoFields(text: string): ReadonlyMap<string, string> {
  return new Map([...text.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name!, value!]));
}

/** What the answer to INFO says for a diagnosis. */
export function readInfo(text: string): Partial<NodeDiagnosis> {
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

/** The value of a setting in the answer to CONFIG GET: a list, or an object for clients that map RESP3 replies to those. */
export function settingOf(reply: unknown, name: string): string | undefined {
  let value: unknown;
  if (Array.isArray(reply)) {
    // Names and values take turns: a value may look like a name.
    const at = reply.findIndex((each, index) => index % 2 === 0 && each === name);
    if (at >= 0) value = (reply as unknown[])[at + 1];
  } else {
    value = (reply as Record<string, unknown> | null | undefined)?.[name];
  }
  return typeof value === 'string' ? value : undefined;
}
