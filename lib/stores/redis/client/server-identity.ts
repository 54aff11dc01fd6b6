import type { RedisClient } from './redis-client.js';

/** Tells a server apart from the same one before its restart. */
export interface ServerIdentity {
  /** Changes with each start of the server that may have lost locks that it acknowledged. */
  run: string;
  /**
   * How long it has known all locks that it granted, unless its run is the one that was seen last; in seconds, rounded down.
   * A promoted replica may have been up for long and yet not know the last grants of its master.
   */
  uptimeS: number;
}

/** The run of a server with this setting: it never forgets a lock that it acknowledged, however often it restarts. */
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
  // A server that does not say may have been one.
  const wasReplica = !/^0+$/.test(fields.get('master_replid2') ?? '');
  // Redis counts how often the second has changed since its start: it may say one second after a moment.
  const sinceStartS = Math.max(0, uptimeS - 1);
  return { run: isOnDisk && !wasReplica ? DURABLE_RUN : run, uptimeS: wasReplica ? 0 : sinceStartS };
}

/** Whether every write is on disk before it is acknowledged; false where CONFIG may not be read. */
async function writesToDiskFirst(client: RedisClient): Promise<boolean> {
  const settings = await client.call('config', 'GET', 'append*').catch(() => []);
  return settingOf(settings, 'appendonly') === 'yes' && settingOf(settings, 'appendfsync') === 'always';
}

/** The fields in the answer to INFO: lines `name:value` in sections. */
export function infoFields(text: string): ReadonlyMap<string, string> {
  return new Map([...text.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name!, value!]));
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
