import { LockUnavailableError } from '../api/errors.js';
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

async function open({ servers, keyPrefix, terminal, limits }: Call, settings: RedisLockSettings): Promise<LockService> {
  try {
    const connectTimeoutMs = limits.connectMs;
    const { service, notices } = await openLocks({ ...servers, keyPrefix, connectTimeoutMs, ...settings });
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
