import {
  BadRequestException,
  HttpException,
  HttpStatus,
  Inject,
  Injectable,
  type CanActivate,
  type ExecutionContext,
} from '@nestjs/common';
import { LockOptionsError, LockUnavailableError, NodeError } from '../../api/errors.js';
import { inTime } from '../../core/time/time-limit.js';
import type { FenceStore } from '../../fencing/fence-store.js';
import { FENCING_TOKEN_HEADER, readFencingHeader, type FencingClaim } from '../../fencing/fencing-header.js';
import { StaleTokenError } from '../../fencing/stale-token.error.js';
import type { KeyTemplate } from '../../core/keys/key-template.js';
import { requestValues } from '../locked/request-values.js';

/** The injection token of the `FenceStore` that `FencingTokenGuard` asks: `{ provide: FENCE_STORE, useValue: … }`. */
export const FENCE_STORE = Symbol.for('nest-redis-lock:FENCE_STORE');

/** The demands on the header of a request. */
export interface HeaderPlan {
  /** The key that it must name, for the token of another lock says nothing about this resource. */
  template?: KeyTemplate;
  /** Whether it may be absent. */
  optional?: boolean;
}

/** The metadata that `@Fenced` attaches to a handler or a controller. */
export interface FencedPlan extends HeaderPlan {
  timeoutMs?: number;
}

export const FENCED_PLAN = Symbol.for('nest-redis-lock:fenced');
const TIMEOUT_MS = 1_000;
const FORM = `${FENCING_TOKEN_HEADER}: <key of the lock>=<fencing token>`;

/**
 * Refuses requests (HTTP, GraphQL) of former holders: those whose `Fencing-Token` is older than one that was seen for its
 * key. It fails closed: 428 without the header, 400 if it cannot be read, 412 if it is too old, 503 while the store
 * cannot be asked.
 *
 * It checks when the request comes in. A request that passed can still be overtaken before it writes: where the handler
 * writes to a database, check the token there again (`fencedUpdate`).
 *
 * `@Fenced(key)` attaches it; used by itself it takes the key that the request names.
 */
@Injectable()
export class FencingTokenGuard implements CanActivate {
  constructor(@Inject(FENCE_STORE) private readonly store: FenceStore) {}

  async canActivate(context: ExecutionContext): Promise<true> {
    const plan = planOf(context);
    const claim = fencingClaimOf(context, plan);
    if (!claim || (await this.#raise(claim, plan?.timeoutMs ?? TIMEOUT_MS))) return true;
    throw new StaleTokenError(claim.fencingToken, { key: claim.key });
  }

  async #raise({ key, fencingToken }: FencingClaim, timeoutMs: number): Promise<boolean> {
    try {
      // A store that raises the token after the time limit does no harm: the token was issued.
      const passed = await inTime(this.store.raise(key, fencingToken), timeoutMs, () => {
        throw new Error(`no answer within ${timeoutMs} ms`);
      });
      return passed === true;
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      const problem = new NodeError('fence store', message, 'Check that the FenceStore can be reached.');
      problem.cause = cause;
      throw LockUnavailableError.from('checked for its fencing token', key, [problem]);
    }
  }
}

/**
 * Reads the header of a request; undefined where it is absent and may be.
 * @throws HttpException 428 when it is absent, 400 when it cannot be read or names another key
 * @throws LockOptionsError when the request is of a kind that has no headers
 */
export function fencingClaimOf(
  context: ExecutionContext,
  { template, optional = false }: HeaderPlan = {},
): FencingClaim | undefined {
  const values = requestValues(context);
  const headers = values('headers') as Record<string, unknown> | undefined;
  if (!headers) {
    throw new LockOptionsError(
      `A handler of type "${context.getType<string>()}" has no headers to read ${FENCING_TOKEN_HEADER} from: ` +
        'put the token in the message, and check it with a FenceStore.',
    );
  }
  const value = headers[FENCING_TOKEN_HEADER.toLowerCase()];
  if (value === undefined) {
    if (optional) return undefined;
    throw new HttpException(`This request needs the header ${FORM}.`, HttpStatus.PRECONDITION_REQUIRED);
  }
  const claim = typeof value === 'string' ? readFencingHeader(value) : undefined;
  if (!claim) throw new BadRequestException(`The request must have one header of the form ${FORM}.`);
  const expected = template?.render(values);
  if (expected !== undefined && expected !== claim.key) {
    throw new BadRequestException(
      `The ${FENCING_TOKEN_HEADER} of this request must be that of the lock "${expected}".`,
    );
  }
  return claim;
}

function planOf(context: ExecutionContext): FencedPlan | undefined {
  const of = (target: object) => Reflect.getMetadata(FENCED_PLAN, target) as FencedPlan | undefined;
  return of(context.getHandler()) ?? of(context.getClass());
}
