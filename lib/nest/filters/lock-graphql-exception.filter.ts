import { Catch, type ExceptionFilter } from '@nestjs/common';
import { LockError } from '../../api/errors.js';
import { answerTo } from './lock-error-answer.js';
import { logAnswered } from './log-answered.js';

/**
 * Turns the lock error of a resolver into one that clients may read: a general message, and the rest of a `LockErrorAnswer`
 * as `extensions`. Without it GraphQL servers show the message of the lock error. Logs refusals as `debug`.
 */
@Catch(LockError)
export class LockGraphQLExceptionFilter implements ExceptionFilter<LockError> {
  catch(error: LockError): never {
    logAnswered(error);
    const { message, ...extensions } = answerTo(error);
    throw Object.assign(new Error(message), { extensions });
  }
}
