import { composeLocks, type OpenedLocks, type Opening } from './composition.js';
import { REDIS, type RedisLockModuleOptions } from './redis-lock-options.js';

/**
 * Opens the locks of one registration on Redis, on a Redlock, or in memory.
 * @param options the options of `RedisLockModule.forRoot`
 * @throws LockOptionsError
 * @throws LockUnavailableError if Redis, or a majority of the nodes, cannot be reached
 */
export async function openLocks(
  options: RedisLockModuleOptions,
  { registration, ...opening }: Opening & { registration?: string } = {},
): Promise<OpenedLocks> {
  return composeLocks(REDIS, options, registration).open(opening);
}
