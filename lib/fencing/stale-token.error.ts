import { LockError } from '../api/errors.js';
import { quoted } from '../api/printable.js';

/** Details of a refused write, besides its token. */
export interface StaleTokenDetails {
  /** The key of the lock. */
  key?: string;
  /** The resource that refused it, for the message. */
  resource?: string;
  /** The newer token that the resource has seen. */
  seen?: number;
  /** Whether the token is certainly the reason: `false` if the row may be missing. @default true */
  isCertain?: boolean;
}

/**
 * The resource has seen a newer fencing token and refused this one: another holder came later, and nothing was written. HTTP status
 * 412, as for any failed precondition. The same token cannot succeed later: acquire the lock again, and read the data again.
 */
export class StaleTokenError extends LockError {
  override name = 'StaleTokenError';
  readonly code = 'LOCK_STALE_TOKEN';
  /** The newer token, if the resource reported it. */
  readonly seen?: number;
  /** Whether the token is certainly the reason: `false` if the row may be missing. */
  readonly isCertain: boolean;

  constructor(
    /** The token that was refused. */
    readonly fencingToken: number,
    { key, resource, seen, isCertain = true }: StaleTokenDetails = {},
  ) {
    const of = key === undefined ? '' : ` of lock ${quoted(key)}`;
    const by = resource === undefined ? 'the resource' : resource;
    const newer = `${by} has seen ${seen === undefined ? 'a newer one' : seen}`;
    super(
      isCertain
        ? `Fencing token ${fencingToken}${of} is too old: ${newer}. Nothing was written; acquire the lock again and start over.`
        : `Fencing token ${fencingToken}${of} has changed nothing: ${newer}, or has no such row. ` +
            'Check whether the row exists; if it does, acquire the lock again and start over.',
      412,
      key,
    );
    this.seen = seen;
    this.isCertain = isCertain;
  }
}
