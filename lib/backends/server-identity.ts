import type { Redis } from 'ioredis';
import type { RedisClient } from '../options.js';

/** A server that is told apart from what it was before it was started again. */
export interface ServerIdentity {
  /** Changes with each start of the server that may have lost what it acknowledged. */
  run: string;
  /**
   * For how long it has known all that it granted, if it is not the run that was seen last: in whole seconds, rounded down.
   * A replica that was promoted may have been up for long, and yet not know the last grants of its master.
   */
  uptimeS: number;
}

/** With it what was acknowledged is on disk: the server knows all its locks, however often it was started. */
const ON_DISK = 'appendfsync always';

/** @throws what the client rejects with; an Error when the server does not tell */
export async function identify(client: RedisClient): Promise<ServerIdentity> {
  const [info, replication, isOnDisk] = await Promise.all([
    client.info('server'),
    client.info('replication'),
    writesToDiskFirst(client),
  ]);
  const run = /^run_id:(\w+)/m.exec(info)?.[1];
  const uptime = /^uptime_in_seconds:(\d+)/m.exec(info)?.[1];
  if (run === undefined || uptime === undefined) throw new Error('INFO tells no run_id and no uptime_in_seconds');
  const wasReplica = !/^master_replid2:0+\r?$/m.test(replication);
  return { run: isOnDisk && !wasReplica ? ON_DISK : run, uptimeS: wasReplica ? 0 : Number(uptime) };
}

/** Where CONFIG may not be read nothing is taken for granted. */
async function writesToDiskFirst(client: RedisClient): Promise<boolean> {
  const settings = await (client as Redis).config('GET', 'append*').catch(() => []);
  // A flat list, or with RESP3 a map.
  const entries = (Array.isArray(settings) ? settings : Object.entries(settings as object).flat()).map(String);
  const valueOf = (name: string) => entries[entries.indexOf(name) + 1];
  return valueOf('appendonly') === 'yes' && valueOf('appendfsync') === 'always';
}
