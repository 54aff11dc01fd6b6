import {
  Inject,
  Injectable,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
  type Type,
} from '@nestjs/common';
import { defer, tap, type Observable } from 'rxjs';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { LockService } from '../../core/service/lock.service.js';
import { setRetryAfter } from '../filters/lock-error-answer.js';
import { injectedService } from '../injection/injected-service.js';
import { InterceptedCall } from './intercepted-call.js';
import { lockedMethodOf } from './locked-method.js';
import { getLockServiceToken } from '../injection/tokens.js';

/**
 * Takes the lock of handlers (HTTP, RPC, WebSocket, GraphQL) whose `@Locked` key is static or made from the request. It takes the
 * lock after the guards and before the pipes, and holds it until every interceptor inside it is done.
 *
 * `@Locked` attaches it to its method, before the method's other interceptors. Register it also on the controller or globally to
 * put it outside of the interceptors there. On HTTP it sets `Retry-After` if another call holds the lock and the remaining time is
 * known.
 */
@Injectable()
export class LockedInterceptor implements NestInterceptor {
  constructor(@Inject(LockService) private readonly locks: LockService) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const handled = this.#underLock(context, next);
    if (context.getType() !== 'http') return handled;
    const response = context.switchToHttp().getResponse<object>();
    return handled.pipe(tap({ error: (error: unknown) => setRetryAfter(response, error) }));
  }

  #underLock(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const locked = lockedMethodOf(context.getHandler());
    if (!locked?.isForInterceptor) return next.handle();
    if (locked.registration !== injectedService(this.locks, locked.name).registration) return next.handle();
    // If the interceptor is registered on several levels, the outermost has acquired the lock.
    if (InterceptedCall.current()?.context === context) return next.handle();
    return defer(() => locked.intercept(context, this.locks, () => next.handle()));
  }
}

const named = new Map<string, Type<LockedInterceptor>>();

/** Returns the interceptor class of a registration; each class injects the service of its registration. */
export function lockedInterceptorOf(registration: string = DEFAULT_REGISTRATION): Type<LockedInterceptor> {
  if (registration === DEFAULT_REGISTRATION) return LockedInterceptor;
  let interceptor = named.get(registration);
  if (!interceptor) {
    @Injectable()
    class NamedLockedInterceptor extends LockedInterceptor {
      constructor(@Inject(getLockServiceToken(registration)) locks: LockService) {
        super(locks);
      }
    }
    named.set(registration, (interceptor = NamedLockedInterceptor));
  }
  return interceptor;
}
