import { isDeepStrictEqual } from 'node:util';
import { formatDiagnosis } from '../api/diagnosis.js';
import { adviceFor, type NodeError } from '../api/errors.js';
import type { LockBackend } from '../core/backend/lock-backend.js';
import { diagnosisOf, REPORT_TIMEOUT_MS, type BackendReport } from '../core/backend/report.js';
import { isOptions, isRecord, refuseUnknown, invalidOption } from '../core/options/checks.js';
import { CHECKS } from '../core/options/option-rows.js';
import {
  DEFAULT_REGISTRATION,
  resolveServiceOptions,
  type ResolvedServiceOptions,
} from '../core/options/service-options.js';
import { LockService } from '../core/service/lock.service.js';
import { closeStore, Shutdown } from '../core/service/shutdown.js';
import { Clock, monotonic } from '../core/time/clock.js';
import { processName } from './process-name.js';

/** Options of a registration with every default filled in and every bound checked. */
export interface ResolvedLockOptions extends ResolvedServiceOptions {
  /** Name of the registration; the default one is called `default`. */
  registration: string;
  /** The store that keeps the locks. */
  backend: { readonly kind: string };
}

/** A kind of store that a lock module is for: its options, and how to open locks in it. */
export interface StoreKind<Given extends object = object, Resolved extends ResolvedLockOptions = ResolvedLockOptions> {
  /** The names of its options, in addition to the options of every registration. */
  readonly names: readonly string[];
  /** Advice for names that are not options. */
  readonly meant: Readonly<Record<string, string>>;
  /** Option names that error messages do not list. */
  unlistedIn?(options: Given): readonly string[];
  /**
   * Checks the options of the store, and whether it can serve the options of the service.
   * @throws LockOptionsError
   */
  resolve(
    options: Given,
    settings: ResolvedServiceOptions,
  ): Omit<Resolved, keyof ResolvedServiceOptions | 'registration'>;
  /**
   * Makes the backend; connects to nothing yet.
   * @param now the clock that `sentAt` is read from, in milliseconds
   * @param processName the beginning of the owner values of this service
   */
  open(options: Resolved, now: () => number, processName: string): Promise<LockBackend>;
  /** Returns what an operator should know about the options. */
  noticesOn?(options: Resolved): Notice[];
}

/**
 * Checks module options and fills in the defaults, for every form of `forRoot`.
 * @throws LockOptionsError for an unknown option, or a value out of bounds
 */
export function resolveOptions<Given extends object, Resolved extends ResolvedLockOptions>(
  kind: StoreKind<Given, Resolved>,
  options: Given,
  registration = DEFAULT_REGISTRATION,
): Resolved {
  if (!isOptions(options)) throw invalidOption('options', options, 'an object');
  const names = [...Object.keys(CHECKS.service), ...kind.names];
  refuseUnknown(options, names, { ...OPTION_HINTS, ...kind.meant }, kind.unlistedIn?.(options));
  const settings = resolveServiceOptions(options);
  return { ...kind.resolve(options, settings), ...settings, registration } as Resolved;
}

const FACTORY_HINT = 'Put name and isGlobal next to useFactory, not into its result.';
const OPTION_HINTS = { name: FACTORY_HINT, isGlobal: FACTORY_HINT };

/** Checks the options of a registration. @throws LockOptionsError */
export function composeLocks<Given extends object, Resolved extends ResolvedLockOptions>(
  kind: StoreKind<Given, Resolved>,
  options: Given,
  registration?: string,
): ComposedLocks {
  return new ComposedLocks(kind, resolveOptions(kind, options, registration));
}

/** The locks of one registration, whose options are checked; nothing is connected yet. */
export class ComposedLocks {
  constructor(
    private readonly kind: StoreKind,
    private readonly options: ResolvedLockOptions,
  ) {}

  /** Name of the registration. */
  get registration(): string {
    return this.options.registration;
  }

  /** Returns the names of the options in which another registration differs. */
  differencesFrom({ kind, options }: ComposedLocks): string[] {
    const { backend, ...settings } = this.options;
    if (kind !== this.kind) return [backend.kind];
    const { backend: otherBackend, ...others } = options;
    const servers = isSameStore(backend, otherBackend) ? [] : [backend.kind, otherBackend.kind];
    return [...new Set([...servers, ...differingIn(settings, others)])];
  }

  /**
   * Opens the service: connects and checks the servers, and closes the backend if that fails. With `lazyConnect` it does not wait.
   * @throws LockUnavailableError if the store cannot be reached
   * @throws the error of servers that must not be used
   */
  async open({ shutdown = new Shutdown(), examine = false }: Opening = {}): Promise<OpenedLocks> {
    const { kind, options, registration } = this;
    const { lazyConnect, connectTimeoutMs } = options;
    const now = options.backend.kind === 'memory' ? monotonic : new Clock().now;
    const name = processName();
    const backend = await kind.open(options, now, name);
    try {
      const connecting = backend.connect(lazyConnect ? 0 : connectTimeoutMs);
      const problems = await (lazyConnect ? connecting.catch(() => []) : connecting);
      const notices = kind.noticesOn?.(options) ?? [];
      if (examine && !lazyConnect) {
        const report = await backend.report(REPORT_TIMEOUT_MS);
        if (report.refusal) throw report.refusal;
        if (report.nodes.length > 0) notices.push(blockOf(registration, report), ...abstentions(report, problems));
      }
      const service = LockService.of({ backend, options, registration, now, processName: name, shutdown });
      return { service, notices };
    } catch (error) {
      await closeStore(backend).catch(() => {}); // report the first error, not the error of closing
      throw error;
    }
  }
}

export interface Opening {
  /** The shutdown of the application, which closes all its lock services at once. @default one of its own */
  shutdown?: Shutdown;
  /**
   * Whether to check the servers first, and refuse servers on which locks would not be safe. Not with `lazyConnect`.
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

/** Whether two registrations have the same servers. Two clients or pools count as different, even for the same server. */
function isSameStore(one: object, other: object): boolean {
  const [values, others] = [Object.values(one).flat(), Object.values(other).flat()] as unknown[][];
  const isSame = (value: unknown, at: number) =>
    value === others![at] || (isPlain(value) && isPlain(others![at]) && isDeepStrictEqual(value, others![at]));
  return values!.length === others!.length && values!.every(isSame);
}

function isPlain(value: unknown): boolean {
  return isRecord(value) && Object.getPrototypeOf(value) === Object.prototype;
}

/** Returns the names of the settings in which two registrations differ. */
function differingIn<Settings extends object>(one: Settings, other: Settings): string[] {
  const names = Object.keys({ ...one, ...other }) as (keyof Settings & string)[];
  return names.filter((name) => !isDeepStrictEqual(one[name], other[name]));
}

/** Makes a notice of the whole report on the servers, at the level of its worst finding. */
function blockOf(registration: string, report: BackendReport): Notice {
  const [worst] = report.findings; // errors come first
  const level = worst === undefined ? 'log' : worst.severity === 'error' ? 'error' : 'warn';
  return { level, message: formatDiagnosis(diagnosisOf(registration, report)) };
}

/** Makes a notice of the nodes that answer but do not vote yet. */
function abstentions({ nodes }: BackendReport, problems: readonly NodeError[]): Notice[] {
  const abstaining = problems.filter(({ node }) => nodes.some(({ name, reachable }) => reachable && name === node));
  if (abstaining.length === 0) return [];
  const message = abstaining.map((problem) => problem.message).join('; ');
  return [{ level: 'warn', message: `Redlock nodes do not vote yet: ${message}. ${adviceFor(abstaining)}` }];
}
