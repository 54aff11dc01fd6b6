import { isDeepStrictEqual } from 'node:util';
import { formatDiagnosis } from '../api/diagnosis.js';
import { adviceFor, type NodeError } from '../api/errors.js';
import { processName } from './process-name.js';
import { diagnosisOf, REPORT_TIMEOUT_MS, type BackendReport } from '../core/backend/report.js';
import { LockService } from '../core/service/lock.service.js';
import { Shutdown } from '../core/service/shutdown.js';
import { Clock, monotonic } from '../core/time/clock.js';
import { haveSameServers } from '../stores/redis/options.js';
import type { ComposedLocks, Notice, OpenedLocks, Opening } from './composition.js';
import { openBackend } from './open-backend.js';
import { resolveOptions, type RedisLockModuleOptions, type ResolvedOptions } from './redis-lock-options.js';

/**
 * Opens the locks of one registration on Redis, on a Redlock, or in memory.
 * @param options the options of `RedisLockModule.forRoot`
 * @throws LockOptionsError
 * @throws LockUnavailableError when Redis, or a majority of the nodes, cannot be reached
 */
export async function openLocks(
  options: RedisLockModuleOptions,
  { registration, ...opening }: Opening & { registration?: string } = {},
): Promise<OpenedLocks> {
  return composeLocks(options, registration).open(opening);
}

/** The composition of `RedisLockModule`. @throws LockOptionsError */
export function composeLocks(options: RedisLockModuleOptions, registration?: string): ComposedLocks {
  return new RedisLocks(resolveOptions(options, registration));
}

class RedisLocks implements ComposedLocks {
  constructor(private readonly options: ResolvedOptions) {}

  get registration(): string {
    return this.options.registration;
  }

  differencesFrom(other: ComposedLocks): string[] {
    const { backend, ...settings } = this.options;
    if (!(other instanceof RedisLocks)) return [backend.kind];
    const { backend: otherBackend, ...otherSettings } = other.options;
    const names = Object.keys({ ...settings, ...otherSettings }) as (keyof typeof settings)[];
    const differing: string[] = names.filter((name) => !isDeepStrictEqual(settings[name], otherSettings[name]));
    return haveSameServers(backend, otherBackend)
      ? differing
      : [...new Set([backend.kind, otherBackend.kind, ...differing])];
  }

  async open({ shutdown = new Shutdown(), examine = false }: Opening = {}): Promise<OpenedLocks> {
    const { options, registration } = this;
    const { backend: servers, lazyConnect, connectTimeoutMs } = options;
    const now = servers.kind === 'memory' ? monotonic : new Clock().now;
    const name = processName();
    const backend = await openBackend(options, now, name);
    try {
      const connecting = backend.connect(lazyConnect ? 0 : connectTimeoutMs);
      const problems = await (lazyConnect ? connecting.catch(() => []) : connecting);
      const notices = servers.kind === 'redlock' ? evenNumber(servers.sources.length) : [];
      if (examine && !lazyConnect && servers.kind !== 'memory') {
        const report = await backend.report(REPORT_TIMEOUT_MS);
        if (report.refusal) throw report.refusal;
        notices.push(blockOf(registration, report), ...abstentions(report, problems));
      }
      const service = LockService.of({
        backend,
        options,
        registration,
        now,
        processName: name,
        shutdown,
        // A node of a Redlock that has restarted does not vote for as long as the longest lock could stand.
        shortestTtlMs: options.waitForReplicas && 3 * options.waitForReplicas.timeoutMs,
        longestHoldMs: servers.kind === 'redlock' ? options.ttlMs : undefined,
      });
      return { service, notices };
    } catch (error) {
      await backend.close();
      throw error;
    }
  }
}

function evenNumber(count: number): Notice[] {
  if (count % 2 === 1) return [];
  const message = `redlock has ${count} nodes, which tolerate no more failures than ${count - 1}: use an odd number.`;
  return [{ level: 'warn', message }];
}

/** The whole report on the servers, logged at the level of its worst finding. */
function blockOf(registration: string, report: BackendReport): Notice {
  const [worst] = report.findings; // errors come first
  const level = worst === undefined ? 'log' : worst.severity === 'error' ? 'error' : 'warn';
  return { level, message: formatDiagnosis(diagnosisOf(registration, report)) };
}

/** A notice of the nodes that answer, but do not vote yet. */
function abstentions({ nodes }: BackendReport, problems: readonly NodeError[]): Notice[] {
  const abstaining = problems.filter(({ node }) => nodes.some(({ name, reachable }) => reachable && name === node));
  if (abstaining.length === 0) return [];
  const message = abstaining.map((problem) => problem.message).join('; ');
  return [{ level: 'warn', message: `Redlock nodes do not vote yet: ${message}. ${adviceFor(abstaining)}` }];
}
