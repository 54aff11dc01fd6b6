import type { LockDiagnosis, LockService, NodeDiagnosis, RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';

/** So long a command may take that no server of a busy machine is far away. */
export const commandTimeoutMs = 10_000;

/** What the doctor says as soon as each server answers within the second that it gives them. */
export function diagnosed(locks: LockService): Promise<LockDiagnosis<NodeDiagnosis>> {
  return until(
    async () => {
      const diagnosis = await locks.diagnose<NodeDiagnosis>();
      return diagnosis.nodes.every(({ reachable }) => reachable) ? diagnosis : undefined;
    },
    { what: 'each server answers the doctor in time' },
  );
}

/** What the doctor says of servers that answer. */
export async function diagnosisOf(options: RedisLockModuleOptions): Promise<LockDiagnosis<NodeDiagnosis>> {
  return diagnosed(await openLocks({ commandTimeoutMs, ...options }));
}
