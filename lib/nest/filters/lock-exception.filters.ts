import {
  Catch,
  HttpException,
  Logger,
  type ArgumentsHost,
  type ExceptionFilter,
  type RpcExceptionFilter,
  type WsExceptionFilter,
} from '@nestjs/common';
import { BaseExceptionFilter } from '@nestjs/core';
import { throwError, type Observable } from 'rxjs';
import { LockError, LockKeyError, type LockErrorCode } from '../../api/errors.js';
import { answerTo, setRetryAfter, type LockErrorAnswer } from './lock-error-answer.js';

const logger = new Logger('LockExceptionsHandler');

/** The response methods that Express and Fastify share. */
interface Response {
  headersSent?: boolean;
  status(code: number): { send(body: unknown): unknown };
}

/**
 * Answers HTTP requests that fail with a lock error, on Express and Fastify. The response has the status of the error, a
 * `LockErrorAnswer` as its body, and `Retry-After` if the error says when to try again. Logs refusals as `debug`.
 */
@Catch(LockError)
export class LockHttpExceptionFilter extends BaseExceptionFilter<LockError | HttpException> {
  override catch(error: LockError, host: ArgumentsHost): void {
    const answer = logged(error);
    const response = host.switchToHttp().getResponse<Response>();
    setRetryAfter(response, error);
    if (this.applicationRef ?? this.httpAdapterHost?.httpAdapter) {
      // oxlint-disable-next-line promise/valid-params -- of a filter
      super.catch(new HttpException(answer, error.status), host);
    } else if (!response.headersSent) {
      response.status(error.status).send(answer); // a filter created with `new` has no adapter
    }
  }
}

/**
 * Answers microservice messages that fail with a lock error: the client's Observable fails with a `LockErrorAnswer` and
 * `status: 'error'`, as with an `RpcException`. Logs refusals as `debug`.
 */
@Catch(LockError)
export class LockRpcExceptionFilter implements RpcExceptionFilter<LockError> {
  catch(error: LockError): Observable<never> {
    const answer = { status: 'error', ...logged(error) };
    return throwError(() => answer);
  }
}

/** A WebSocket, which sends text, or a socket of Socket.IO, which emits events. */
interface Client {
  readyState?: unknown;
  send?: (text: string) => void;
  emit?: (event: string, data: unknown) => void;
}

/**
 * Answers gateway messages that fail with a lock error. As with a `WsException`, the client gets an event `exception` with a
 * `LockErrorAnswer`, `status: 'error'`, and its own message as `cause`. Logs refusals as `debug`.
 */
@Catch(LockError)
export class LockWsExceptionFilter implements WsExceptionFilter<LockError> {
  catch(error: LockError, host: ArgumentsHost): void {
    const message = host.switchToWs();
    const client = message.getClient<Client>();
    const cause = { pattern: message.getPattern(), data: message.getData<unknown>() };
    const data = { status: 'error', ...logged(error), cause };
    // A WebSocket also has `emit`, but that calls listeners in this process.
    if (typeof client.readyState === 'number') client.send?.(JSON.stringify({ event: 'exception', data }));
    else client.emit?.('exception', data);
  }
}

/**
 * Replaces the lock error of a resolver by an error for clients: a general message, and the rest of a `LockErrorAnswer` as
 * `extensions`. Without this filter, GraphQL servers show the message of the lock error. Logs refusals as `debug`.
 */
@Catch(LockError)
export class LockGraphQLExceptionFilter implements ExceptionFilter<LockError> {
  catch(error: LockError): never {
    const { message, ...extensions } = logged(error);
    throw Object.assign(new Error(message), { extensions });
  }
}

const OTHER_FILTERS = new Map<string, { catch(error: LockError, host: ArgumentsHost): unknown }>([
  ['rpc', new LockRpcExceptionFilter()],
  ['ws', new LockWsExceptionFilter()],
  ['graphql', new LockGraphQLExceptionFilter()],
]);

/**
 * Answers clients of every transport, like the filter of that transport. For the whole application, since Nest calls only one
 * filter for an error: `{ provide: APP_FILTER, useClass: LockExceptionFilter }`. Gateways need `@UseFilters(LockWsExceptionFilter)`,
 * since Nest does not call global filters for them.
 */
@Catch(LockError)
export class LockExceptionFilter extends LockHttpExceptionFilter {
  override catch(error: LockError, host: ArgumentsHost): unknown {
    const type = host.getType<string>();
    if (type === 'http') return super.catch(error, host); // oxlint-disable-line promise/valid-params -- of a filter
    const filter = OTHER_FILTERS.get(type);
    if (!filter) throw error; // an unknown transport may handle the error itself
    return filter.catch(error, host); // oxlint-disable-line promise/valid-params -- the same
  }
}

/** Errors without a level here are mistakes in the program, and are logged as errors. */
const LEVELS: Partial<Record<LockErrorCode, 'debug' | 'warn'>> = {
  LOCK_CONTENDED: 'debug',
  LOCK_UNAVAILABLE: 'debug',
  LOCK_LOST: 'warn',
  LOCK_STALE_TOKEN: 'warn',
};

/**
 * Makes the answer to a client, and logs the error. Refusals need no higher level: other code logs outages, and the first request
 * that lacks a part of a key.
 */
function logged(error: LockError): LockErrorAnswer {
  const level = error instanceof LockKeyError && error.status === 400 ? 'debug' : LEVELS[error.code];
  if (level) logger[level](error.message);
  else logger.error(error);
  return answerTo(error);
}
