import { STATUS_CODES } from 'node:http';
import { LockContendedError, LockKeyError, type LockError, type LockErrorCode } from '../../api/errors.js';

/** The part of a lock error that clients may see: without keys, holders and servers. */
export interface LockErrorAnswer {
  /** The HTTP status of the error, on all transports. */
  statusCode: number;
  code: LockErrorCode;
  /** A sentence that names no key. */
  message: string;
  /** The part of the request that is missing or cannot be used in a key, as written in the key: `params.id`. */
  field?: string;
  /** Whole milliseconds until the holder's lease expires unless it is extended, if known. */
  retryAfterMs?: number;
}

const MESSAGES: Partial<Record<LockErrorCode, string>> = {
  LOCK_CONTENDED: 'The resource is in use at the moment: try again later.',
  LOCK_UNAVAILABLE: 'The service is not available at the moment: try again later.',
  LOCK_LOST: 'The work was interrupted: check its outcome before you try again.',
  LOCK_STALE_TOKEN: 'The resource has changed meanwhile, and nothing was written: read it again.',
};

export function answerTo(error: LockError): LockErrorAnswer {
  const { code, statusCode } = error;
  const answer: LockErrorAnswer = { statusCode, code, message: MESSAGES[code] ?? STATUS_CODES[statusCode]! };
  if (code === 'LOCK_LOST' && statusCode === 409)
    answer.message = 'The resource is no longer locked for you: read it again before you go on.';
  if (error instanceof LockKeyError && error.field !== undefined) {
    answer.message = `${error.field} is missing, or cannot be used.`;
    answer.field = error.field;
  }
  const retryAfterMs = knownRetryMs(error);
  if (retryAfterMs !== undefined) answer.retryAfterMs = retryAfterMs;
  return answer;
}

interface HttpResponse {
  headersSent?: boolean;
  /** The Node.js response inside a Fastify reply. */
  raw?: { headersSent?: boolean };
  header?: (name: string, value: string) => unknown;
}

/** Sets `Retry-After` on a response of Express or Fastify, in whole seconds, if the error says when to try again. */
export function setRetryAfter(response: HttpResponse, error: unknown): void {
  const retryMs = knownRetryMs(error);
  if (retryMs === undefined || (response.raw ?? response).headersSent) return;
  response.header?.('Retry-After', String(Math.max(1, Math.ceil(retryMs / 1_000))));
}

function knownRetryMs(error: unknown): number | undefined {
  const remainingMs = error instanceof LockContendedError ? error.remainingMs : undefined;
  return Number.isFinite(remainingMs) ? remainingMs : undefined;
}
