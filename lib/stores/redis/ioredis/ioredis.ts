import { installed } from '../../node/installed.js';
import { credentials, problemOf, type Credentials } from '../../node/problem-of.js';
import { CommandFault } from '../client/redis-client.js';
import type { Cluster, IoredisClient, Redis, RedisOptions } from '../client/source.js';

/** The class of errors from Redis, once ioredis is loaded. */
let replyError: unknown;

/** Loads ioredis when the first Redis is used. @throws LockOptionsError when it is not installed */
export async function loadIoredis() {
  const feature = 'Redis options and clients of ioredis';
  const instead = ' With node-redis give { socket: { host, port } }, or the URL by itself.';
  const ioredis = await installed('ioredis', import('ioredis'), feature, instead);
  replyError = ioredis.ReplyError;
  return ioredis;
}

/**
 * Whether Redis sent this error. In a bundle the class identifies it, because a minifier changes its name. If the application has
 * another copy of ioredis, the name identifies it.
 */
export function isReplyError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return error.name === 'ReplyError' || (typeof replyError === 'function' && error instanceof replyError);
}

/**
 * Returns the message of an error of ioredis without anything that may contain a password.
 * @param client the client whose credentials are removed
 */
export function problemOfIoredis(error: unknown, client: IoredisClient): string {
  return problemOf(error).startsWith('Reached the max retries per request')
    ? 'the connection broke before the answer came'
    : problemOf(error, credentialsOf(client));
}

export function faultOf(error: unknown, client: IoredisClient): CommandFault {
  const problem = problemOfIoredis(error, client);
  if (isReplyError(error)) return new CommandFault(problem, 'refused');
  // The user has set ioredis' option `commandTimeout`.
  const isOverdue = problemOf(error) === 'Command timed out';
  return new CommandFault(problem, isOverdue ? 'overdue' : 'disconnected');
}

/** The current credentials of a client. */
export function credentialsOf(client: IoredisClient): Credentials {
  const options: (RedisOptions | undefined)[] = client.isCluster
    ? [(client as Cluster).options.redisOptions, ...(client as Cluster).nodes('all').map((node) => node.options)]
    : [(client as Redis).options];
  const all = (...names: (keyof RedisOptions)[]) =>
    options.flatMap((each) => names.map((name) => each?.[name] as unknown));
  return credentials(all('password', 'sentinelPassword'), all('username', 'sentinelUsername'));
}
