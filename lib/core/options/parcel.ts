import { LockOptionsError } from '../../api/errors.js';
import { isDetachedOwner } from '../../api/holder.js';
import type { DetachOptions, LockParcel } from '../../api/parcel.js';
import { described, refuseUnknown } from './checks.js';
import { checkOption } from './option-rows.js';

/** The error does not quote the parcel: it may be a secret. */
function invalidParcel(problem: string): LockOptionsError {
  return new LockOptionsError(
    `This is not a parcel of a lock: ${problem}. Pass what lock.detach returned, as an object: JSON.parse turns a text into one.`,
  );
}

/**
 * Checks everything in a parcel but its key: a parcel may have come over a network. Refuses the owner value of a process, which is not a secret.
 * @throws LockOptionsError
 */
export function checkParcel(parcel: unknown): LockParcel {
  if (typeof parcel !== 'object' || parcel === null)
    throw invalidParcel(`it is ${typeof parcel === 'string' ? 'a string' : described(parcel)}`);
  const { v, key, owner, fencingToken, ttlMs } = parcel as Partial<Record<keyof LockParcel, unknown>>;
  if (v !== 1)
    throw invalidParcel('its v is not 1, so it comes from another version of this library, or is not a parcel at all');
  if (typeof key !== 'string') throw invalidParcel('its key is not a string');
  if (typeof owner !== 'string' || !isDetachedOwner(owner))
    throw invalidParcel('its owner does not belong to a detached lock');
  if (!Number.isSafeInteger(fencingToken) || (fencingToken as number) < 1)
    throw invalidParcel('its fencingToken is not a fencing token');
  try {
    checkOption('withLock', 'ttlMs', ttlMs);
  } catch {
    throw invalidParcel('its ttlMs must be 20 to 86 400 000');
  }
  return { v, key, owner, fencingToken: fencingToken as number, ttlMs: ttlMs as number };
}

/** @param call the method that gets the options @throws LockOptionsError */
export function checkParcelOptions(call: 'detach' | 'extend', options: unknown): DetachOptions {
  if (typeof options !== 'object' || options === null)
    throw new LockOptionsError(`${call} needs { ttlMs }, how long the lock remains valid: got ${described(options)}.`);
  refuseUnknown(options, call === 'detach' ? ['ttlMs', 'note'] : ['ttlMs']);
  const { ttlMs, note } = options as { ttlMs?: unknown; note?: unknown };
  checkOption('withLock', 'ttlMs', ttlMs);
  if (note !== undefined) checkOption('withLock', 'note', note);
  return options as DetachOptions;
}
