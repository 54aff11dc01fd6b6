import type { RedisClient } from './redis-client.js';
import { infoFields, settingOf } from './server-info.js';

/** A server that is told apart from what it was before it was started again. */
export interface ServerIdentity {
  /** Changes with each start of the server that may have lost what it acknowledged. */
  run: string;
  /**
   * For how long it has known all that it granted, if it is not the run that was seen last: in whole seconds, at most.
   * A replica that was promoted may have been up for long, and yet not know the last grants of its master.
   */
  uptimeS: number;
}

/** With it what was acknowledged is on disk: the server knows all its locks, however often it was started. */
const ON_DISK = 'appendfsync always';

/** @throws what the client rejects with; an Error when the server does not tell */
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
  // Where that is not told, it may have been one.
  const wasReplica = !/^0+$/.test(fields.get('master_replid2') ?? '');
  // Redis counts how often the second changed since the start: it says one second after a moment.
  const sinceStartS = Math.max(0, uptimeS - 1);
  return { run: isOnDisk && !wasReplica ? ON_DISK : run, uptimeS: wasReplica ? 0 : sinceStartS };
}

/** Where CONFIG may not be read nothing is taken for granted. */
async function writesToDiskFirst(client: RedisClient): Promise<boolean> {
  const settings = await client.call('config', 'GET', 'append*').catch(() => []);
  return settingOf(settings, 'appendonly') === 'yes' && settingOf(settings, 'appendfsync') === 'always';
}
