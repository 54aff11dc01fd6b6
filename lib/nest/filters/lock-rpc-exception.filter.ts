import { Catch, type RpcExceptionFilter } from '@nestjs/common';
import { throwError, type Observable } from 'rxjs';
import { LockError } from '../../api/errors.js';
import { answerTo } from './lock-error-answer.js';
import { logAnswered } from './log-answered.js';

/**
 * Answers messages of microservices that fail with a lock error: the client's Observable fails with a `LockErrorAnswer` and
 * `status: 'error'`, as with an `RpcException`. Logs refusals as `debug`.
 */
@Catch(LockError)
export class LockRpcExceptionFilter implements RpcExceptionFilter<LockError> {
  catch(error: LockError): Observable<never> {
    logAnswered(error);
    return throwError(() => ({ status: 'error', ...answerTo(error) }));
  }
}
