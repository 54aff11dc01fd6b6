import { LockUnavailableError } from '../api/errors.js';
import type { OpenedLocks } from '../compose/composition.js';
import { openLocks } from '../compose/open-locks.js';
import type { RedisLockSettings } from '../compose/redis-lock-options.js';
import type { LockService } from '../core/service/lock.service.js';
import { NEEDS_PASSWORD } from '../stores/redis/client/advice.js';
import type { Call } from './command.js';
import { whole } from './text.js';

/** For commands that grant no lock: without admission, as to ask a node whether it votes writes to it. */
export const TO_LOOK: RedisLockSettings = { admission: false, commandTimeoutMs: 5_000 };

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
    if (!(error instanceof LockUnavailableError)) throw error;
    // Its own message is for applications.
    const nodes = error.causes.map(({ message }) => message).join('; ');
    const advice = error.causes.some((cause) => cause.advice === NEEDS_PASSWORD)
      ? ' Set REDIS_PASSWORD, or put the password into the URL.'
      : '';
    throw new LockUnavailableError(`The servers cannot be used: ${nodes}.${advice}`, undefined, error.causes);
  }
}

async function openOn({ servers, keyPrefix }: Call, settings: RedisLockSettings): Promise<OpenedLocks> {
  if ('redis' in servers || 'redlock' in servers) return openLocks({ ...servers, keyPrefix, ...settings });
  const { admission: _, fair: _fair, ...others } = settings; // no command has a queue of its own
  // Loaded when needed: no driver of a database may be installed.
  const { composeSqlLocks } = await import('../compose/open-sql.js');
  return composeSqlLocks({ ...servers, janitor: false, ...others }).open();
}
