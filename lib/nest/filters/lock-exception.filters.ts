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
 * Answers HTTP requests that fail with a lock error, on Express and Fastify: with its status, a `LockErrorAnswer` as the
 * body, and `Retry-After` where it is known when to try again. Logs refusals as `debug`.
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
      response.status(error.status).send(answer); // made with `new`, so Nest gave it no adapter
    }
  }
}

/**
 * Answers messages of microservices that fail with a lock error: the client's Observable fails with a `LockErrorAnswer` and
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
 * Answers messages of gateways that fail with a lock error: the client gets an event `exception` with a `LockErrorAnswer`,
 * `status: 'error'`, and its own message as `cause`, as with a `WsException`. Logs refusals as `debug`.
 */
@Catch(LockError)
export class LockWsExceptionFilter implements WsExceptionFilter<LockError> {
  catch(error: LockError, host: ArgumentsHost): void {
    const message = host.switchToWs();
    const client = message.getClient<Client>();
    const cause = { pattern: message.getPattern(), data: message.getData<unknown>() };
    const data = { status: 'error', ...logged(error), cause };
    // A WebSocket has `emit`, too, which calls listeners of this process.
    if (typeof client.readyState === 'number') client.send?.(JSON.stringify({ event: 'exception', data }));
    else client.emit?.('exception', data);
  }
}

/**
 * Turns the lock error of a resolver into one that clients may read: a general message, and the rest of a `LockErrorAnswer`
 * as `extensions`. Without it GraphQL servers show the message of the lock error. Logs refusals as `debug`.
 */
@Catch(LockError)
export class LockGraphQLExceptionFilter implements ExceptionFilter<LockError> {
  catch(error: LockError): never {
    const { message, ...extensions } = logged(error);
    throw Object.assign(new Error(message), { extensions });
  }
}

const OF_OTHERS = new Map<string, { catch(error: LockError, host: ArgumentsHost): unknown }>([
  ['rpc', new LockRpcExceptionFilter()],
  ['ws', new LockWsExceptionFilter()],
  ['graphql', new LockGraphQLExceptionFilter()],
]);

/**
 * Answers clients of every transport, each as the filter of that transport does. For the whole application:
 * `{ provide: APP_FILTER, useClass: LockExceptionFilter }`, since Nest asks only one filter for an error. Gateways need
 * `@UseFilters(LockWsExceptionFilter)`: Nest does not ask filters of the whole application for them.
 */
@Catch(LockError)
export class LockExceptionFilter extends LockHttpExceptionFilter {
  override catch(error: LockError, host: ArgumentsHost): unknown {
    const type = host.getType<string>();
    if (type === 'http') return super.catch(error, host); // oxlint-disable-line promise/valid-params -- of a filter
    const filter = OF_OTHERS.get(type);
    if (!filter) throw error; // the transport is unknown here, but its caller may handle the error
    return filter.catch(error, host); // oxlint-disable-line promise/valid-params -- the same
  }
}

/** Of errors that have no level here, the program is to blame. */
const LEVELS: Partial<Record<LockErrorCode, 'debug' | 'warn'>> = {
  LOCK_CONTENDED: 'debug',
  LOCK_UNAVAILABLE: 'debug',
  LOCK_LOST: 'warn',
  LOCK_STALE_TOKEN: 'warn',
};

/**
 * Makes the answer to a client, and logs the error. Refusals are ordinary: an outage is logged elsewhere, and so is the first
 * request that lacks a part of a key. Errors of the program keep their stack.
 */
function logged(error: LockError): LockErrorAnswer {
  const level = error instanceof LockKeyError && error.status === 400 ? 'debug' : LEVELS[error.code];
  if (level) logger[level](error.message);
  else logger.error(error);
  return answerTo(error);
}
