import type { RedisClient } from './redis-client.js';

/** Identifies a server between two restarts. */
export interface ServerIdentity {
  /** Changes with each start of a server that may have lost acknowledged locks. */
  run: string;
  /**
   * How long it has known all locks that it granted, in seconds, rounded down. It is ignored if the run has not changed. A promoted
   * replica may have been up for a long time without knowing the last grants of its master.
   */
  uptimeS: number;
}

/** The constant run of a server with this setting, which never loses an acknowledged lock, even in a restart. */
const DURABLE_RUN = 'appendfsync always';

/** Asks a server for its identity. @throws the client's error; an Error when INFO lacks the fields */
export async function identify(client: RedisClient): Promise<ServerIdentity> {
  const [info, replication, isOnDisk] = await Promise.all([
    client.call('info', 'server'),
    client.call('info', 'replication'),
    writesToDiskFirst(client),
  ]);
  const fields = infoFields(`${String(info)}\r\n${String(replication)}`);
  const run = fields.get('run_id');
  const uptimeS = Number(fields.get('uptime_in_seconds') || NaN);
  if (!run || Number.isNaN(uptimeS)) throw new Error('INFO lacks run_id or uptime_in_seconds');
  // If the field is missing, the server may have been a replica.
  const wasReplica = !/^0+$/.test(fields.get('master_replid2') ?? '');
  // Redis counts changes of the second, so this may be up to a second too high.
  const sinceStartS = Math.max(0, uptimeS - 1);
  return { run: isOnDisk && !wasReplica ? DURABLE_RUN : run, uptimeS: wasReplica ? 0 : sinceStartS };
}

/** Whether every write is on disk before its acknowledgement; false without the right to read CONFIG. */
async function writesToDiskFirst(client: RedisClient): Promise<boolean> {
  const settings = await client.call('config', 'GET', 'append*').catch(() => []);
  return settingOf(settings, 'appendonly') === 'yes' && settingOf(settings, 'appendfsync') === 'always';
}

/** The fields in the answer to INFO: lines `name:value` in sections. */
export function infoFields(text: string): ReadonlyMap<string, string> {
  return new Map([...text.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name!, value!]));
}

/** Returns a setting from the answer to CONFIG GET. Some clients convert its list to an object (RESP3). */
export function settingOf(reply: unknown, name: string): string | undefined {
  let value: unknown;
  if (Array.isArray(reply)) {
    // Names have even indexes: a value may equal a name.
    const at = reply.findIndex((each, index) => index % 2 === 0 && each === name);
    if (at >= 0) value = (reply as unknown[])[at + 1];
  } else {
    value = (reply as Record<string, unknown> | null | undefined)?.[name];
  }
  return typeof value === 'string' ? value : undefined;
}
