import { Catch, HttpException, type ArgumentsHost } from '@nestjs/common';
import { BaseExceptionFilter } from '@nestjs/core';
import { LockError } from '../../api/errors.js';
import { answerTo, setRetryAfter } from './lock-error-answer.js';
import { logAnswered } from './log-answered.js';

/** The response methods that Express and Fastify share. */
interface Response {
  headersSent?: boolean;
  status(code: number): { send(body: unknown): unknown };
}

/**
 * Answers HTTP requests that fail with a lock error, on Express and Fastify: with its status, a `LockErrorAnswer` as the
 * body, and `Retry-After` where it is known when to try again. Logs refusals as `debug`.
 */
@Catch(LockError)
export class LockHttpExceptionFilter extends BaseExceptionFilter<LockError | HttpException> {
  override catch(error: LockError, host: ArgumentsHost): void {
    logAnswered(error);
    const response = host.switchToHttp().getResponse<Response>();
    setRetryAfter(response, error);
    if (this.applicationRef ?? this.httpAdapterHost?.httpAdapter) {
      // oxlint-disable-next-line promise/valid-params -- of a filter
      super.catch(new HttpException(answerTo(error), error.status), host);
    } else if (!response.headersSent) {
      response.status(error.status).send(answerTo(error)); // made with `new`, so Nest gave it no adapter
    }
  }
}
