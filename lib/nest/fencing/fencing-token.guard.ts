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
import { quoted } from '../../api/printable.js';
import { machineDate } from '../../core/time/clock.js';
import { inTime } from '../../core/time/time-limit.js';
import type { FenceStore } from '../../fencing/fence-store.js';
import { FENCING_TOKEN_HEADER, readFencingHeader, type FencingClaim } from '../../fencing/fencing-header.js';
import { StaleTokenError } from '../../fencing/stale-token.error.js';
import type { KeyTemplate } from '../../core/keys/key.js';
import { requestValues, type MissingKeyWarnings } from '../locked/request-keys.js';

/** The injection token of the `FenceStore` that `FencingTokenGuard` uses: `{ provide: FENCE_STORE, useValue: … }`. */
export const FENCE_STORE = Symbol.for('nest-redis-lock:FENCE_STORE');

/** The requirements of `@Fenced` or `@FencingToken` for a request. */
export interface FencePlan {
  readonly decorator: '@Fenced' | '@FencingToken';
  /** The key that the header must name: a token of another lock says nothing about this resource. */
  readonly template?: KeyTemplate;
  /** Whether the header may be absent. */
  readonly optional: boolean;
  /** Maximum time that the token may be ahead of this machine's clock, in milliseconds. */
  readonly maxAheadMs: number;
  /** Time limit of the store, in milliseconds. */
  readonly timeoutMs: number;
  readonly missingKeys: MissingKeyWarnings;
}

/** The metadata that `@Fenced` attaches to a handler or a controller. */
export const FENCED_PLAN = Symbol.for('nest-redis-lock:fenced');
const MICROSECONDS = 1_000;
const FORM = `${FENCING_TOKEN_HEADER}: <key of the lock>=<fencing token>`;

/**
 * Refuses HTTP and GraphQL requests of former holders: their `Fencing-Token` is older than one already seen for its key. The guard
 * fails closed: 428 without the header, 400 if it cannot be read, 412 if it is too old, 503 while the store cannot be reached. A
 * token too far in the future gets 400: it would lock out every later holder.
 *
 * It checks when the request arrives. A request that passed can still be overtaken before it writes: if the handler writes to a
 * database, check the token there again (`fencedUpdate`).
 *
 * `@Fenced(key)` attaches this guard. Without its key, every request fails with 500: the store remembers each key, so a client must
 * not be able to choose one.
 */
@Injectable()
export class FencingTokenGuard implements CanActivate {
  constructor(@Inject(FENCE_STORE) private readonly store: FenceStore) {}

  async canActivate(context: ExecutionContext): Promise<true> {
    const plan = planOf(context);
    const claim = fencingClaimOf(context, plan);
    if (!claim || (await this.#raise(claim, plan.timeoutMs))) return true;
    throw new StaleTokenError(claim.fencingToken, { key: claim.key });
  }

  async #raise({ key, fencingToken }: FencingClaim, timeoutMs: number): Promise<boolean> {
    try {
      // If the store raises the token after the time limit, that does no harm: a lock has this token.
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
 * Reads the header of a request; undefined if an optional header is absent.
 * @throws HttpException 428 if it is absent, 400 if it cannot be read, names another key, or is too far in the future
 * @throws LockOptionsError if requests of this kind have no headers
 */
export function fencingClaimOf(context: ExecutionContext, plan: FencePlan): FencingClaim | undefined {
  const { optional, maxAheadMs } = plan;
  const values = requestValues(context);
  const headers = values('headers') as Record<string, unknown> | undefined;
  if (!headers) {
    throw new LockOptionsError(
      `A handler of type ${quoted(context.getType<string>())} has no headers to read ${FENCING_TOKEN_HEADER} from: ` +
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
  const expected = expectedKey(context, plan);
  if (expected !== undefined && expected !== claim.key) {
    // Keys go into the cause, which only the log shows.
    throw new BadRequestException(`The ${FENCING_TOKEN_HEADER} of this request belongs to another lock.`, {
      cause: new Error(`expected the token of ${quoted(expected)}, got one of ${quoted(claim.key)}`),
    });
  }
  // After such a token, a fence would refuse all tokens that locks get until that time.
  if (claim.fencingToken > (machineDate() + maxAheadMs) * MICROSECONDS) {
    throw new BadRequestException(
      `The ${FENCING_TOKEN_HEADER} of this request is too far ahead of the clock of this server.`,
      {
        cause: new Error(
          `the token ${claim.fencingToken} is more than ${maxAheadMs} ms ahead. If the token comes from a lock, compare the clocks of this ` +
            'machine and of the store of the locks, or raise maxAheadMs',
        ),
      },
    );
  }
  return claim;
}

/** Returns the key that a request must name. @throws LockKeyError that names the handler */
function expectedKey(context: ExecutionContext, { decorator, template, missingKeys }: FencePlan): string | undefined {
  try {
    return template?.render(requestValues(context));
  } catch (error) {
    throw missingKeys.explain(`${decorator} on ${handlerOf(context)}`, error);
  }
}

function handlerOf(context: ExecutionContext): string {
  return `${context.getClass().name}.${context.getHandler().name}`;
}

/** @throws LockOptionsError if neither the handler nor its controller has a plan */
function planOf(context: ExecutionContext): FencePlan {
  const [handler, controller] = [context.getHandler(), context.getClass()];
  const of = (target: object) => Reflect.getMetadata(FENCED_PLAN, target) as FencePlan | undefined;
  const plan = of(handler) ?? of(controller);
  if (plan) return plan;
  throw new LockOptionsError(
    `${handlerOf(context)} has a FencingTokenGuard but no key: write @Fenced('…'), which attaches the guard, with ` +
      'the key of the lock.',
  );
}
