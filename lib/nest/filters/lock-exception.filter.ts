import { Catch, type ArgumentsHost } from '@nestjs/common';
import { LockError } from '../../api/errors.js';
import { LockGraphQLExceptionFilter } from './lock-graphql-exception.filter.js';
import { LockHttpExceptionFilter } from './lock-http-exception.filter.js';
import { LockRpcExceptionFilter } from './lock-rpc-exception.filter.js';
import { LockWsExceptionFilter } from './lock-ws-exception.filter.js';

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
