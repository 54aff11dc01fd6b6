import type { LockService } from '../core/service/lock.service.js';
import type { Shutdown } from '../core/service/shutdown.js';

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
