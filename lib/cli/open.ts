import { LockUnavailableError, type NodeError } from '../api/errors.js';
import { composeLocks, type OpenedLocks } from '../compose/composition.js';
import { openLocks } from '../compose/open-locks.js';
import type { RedisLockSettings } from '../compose/redis-lock-options.js';
import type { LockService } from '../core/service/lock.service.js';
import { NEEDS_PASSWORD } from '../stores/redis/client/advice.js';
import { NoTableError, TOO_BUSY, WRONG_PASSWORD } from '../stores/sql/advice.js';
import type { Call } from './command.js';
import { whole } from './text.js';

/** For commands that acquire no lock. Without admission, since that check writes to the nodes. */
export const READ_ONLY_SETTINGS: RedisLockSettings = { admission: false, commandTimeoutMs: 5_000 };

/**
 * Does the work of a command with the locks on its servers.
 * @throws LockUnavailableError when they cannot be reached
 */
export async function withLocks(
  call: Call,
  settings: RedisLockSettings,
  work: (locks: LockService) => Promise<number>,
): Promise<number> {
  const locks = await open(call, settings);
  try {
    return await work(locks);
  } finally {
    await locks.close();
  }
}

async function open(call: Call, settings: RedisLockSettings): Promise<LockService> {
  const { terminal, limits } = call;
  try {
    const { service, notices } = await openOn(call, { connectTimeoutMs: limits.connectMs, ...settings });
    for (const { message } of notices) terminal.complain(whole(message));
    return service;
  } catch (error) {
    // The original messages are for applications.
    if (error instanceof NoTableError) throw withoutTable(call, error);
    if (!(error instanceof LockUnavailableError)) throw error;
    const nodes = error.causes.map(({ message }) => message).join('; ');
    const isDatabase = 'postgres' in call.servers || 'mysql' in call.servers;
    const advice = new Set(error.causes.flatMap((cause) => adviceOn(cause, isDatabase) ?? []));
    const message = [`The servers cannot be used: ${nodes}.`, ...advice].join(' ');
    throw new LockUnavailableError(message, undefined, error.causes);
  }
}

function withoutTable({ servers }: Call, error: NoTableError): NoTableError {
  const dialect = 'mysql' in servers ? 'mysql' : 'postgres';
  const table = 'table' in servers && servers.table !== undefined ? ` --table ${servers.table}` : '';
  return error.otherwise(`with what \`npx nest-redis-lock ddl ${dialect}${table}\` prints`);
}

/** Returns the advice about a database; about Redis, only advice on options and variables of this program. */
function adviceOn({ advice }: NodeError, isDatabase: boolean): string | undefined {
  if (advice === NEEDS_PASSWORD) return 'Set REDIS_PASSWORD, or put the password into the URL.';
  if (advice === WRONG_PASSWORD)
    return 'Correct the user name and the password, in the URL or in PGUSER, PGPASSWORD and MYSQL_PWD.';
  return isDatabase && advice !== TOO_BUSY ? advice : undefined;
}

async function openOn({ servers, keyPrefix }: Call, settings: RedisLockSettings): Promise<OpenedLocks> {
  if ('redis' in servers || 'redlock' in servers) return openLocks({ ...servers, keyPrefix, ...settings });
  const { admission: _, fair: _fair, ...others } = settings; // no command has a queue of its own
  // Loaded only when needed: maybe no database driver is installed.
  const { SQL } = await import('../compose/sql-lock-options.js');
  return composeLocks(SQL, { ...servers, janitor: false, ...others }).open();
}
