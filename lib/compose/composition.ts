import { isDeepStrictEqual } from 'node:util';
import { formatDiagnosis } from '../api/diagnosis.js';
import { adviceFor, type NodeError } from '../api/errors.js';
import type { LockBackend } from '../core/backend/lock-backend.js';
import { diagnosisOf, REPORT_TIMEOUT_MS, type BackendReport } from '../core/backend/report.js';
import { LockService, type LockServiceParts } from '../core/service/lock.service.js';
import { Shutdown } from '../core/service/shutdown.js';

/** Checks the options of a registration, and returns what opens its locks. @throws LockOptionsError */
export type LockComposition<Options> = (options: Options, registration?: string) => ComposedLocks;

/** The locks of one registration, whose options are checked; nothing is connected yet. */
export interface ComposedLocks {
  /** Name of the registration. */
  readonly registration: string;
  /** The names of the options in which another registration differs; none when both lock the same in the same way. */
  differencesFrom(other: ComposedLocks): string[];
  /**
   * Connects, unless the options say not to wait for it.
   * @throws LockUnavailableError when the store cannot be reached
   */
  open(opening?: Opening): Promise<OpenedLocks>;
}

export interface Opening {
  /** The shutdown of the application, which closes all its lock services at once. @default one of its own */
  shutdown?: Shutdown;
  /**
   * Check the servers first: those on which locks would be given, but not safely, are refused. Not with `lazyConnect`.
   * @default false
   */
  examine?: boolean;
}

export interface OpenedLocks {
  service: LockService;
  /** Messages for the operator: the caller logs them. */
  notices: Notice[];
}

/** One entry of a log. */
export interface Notice {
  level: 'log' | 'warn' | 'error';
  message: string;
}

/** The names of the settings in which two registrations differ. */
export function differingIn<Settings extends object>(one: Settings, other: Settings): string[] {
  const names = Object.keys({ ...one, ...other }) as (keyof Settings & string)[];
  return names.filter((name) => !isDeepStrictEqual(one[name], other[name]));
}

/**
 * Opens a service on a backend, whatever keeps its locks: connects, checks the servers, and closes the backend if that fails.
 * @throws LockUnavailableError when the store cannot be reached; why its servers must not be used
 */
export async function openService(
  backend: LockBackend,
  settings: Omit<LockServiceParts, 'backend' | 'shutdown'>,
  { shutdown = new Shutdown(), examine = false }: Opening = {},
): Promise<OpenedLocks> {
  const { registration, options } = settings;
  const { lazyConnect, connectTimeoutMs } = options;
  try {
    const connecting = backend.connect(lazyConnect ? 0 : connectTimeoutMs);
    const problems = await (lazyConnect ? connecting.catch(() => []) : connecting);
    const notices: Notice[] = [];
    if (examine && !lazyConnect) {
      const report = await backend.report(REPORT_TIMEOUT_MS);
      if (report.refusal) throw report.refusal;
      if (report.nodes.length > 0) notices.push(blockOf(registration, report), ...abstentions(report, problems));
    }
    return { service: LockService.of({ ...settings, backend, shutdown }), notices };
  } catch (error) {
    await backend.close();
    throw error;
  }
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
