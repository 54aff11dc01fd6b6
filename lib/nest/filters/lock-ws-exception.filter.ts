import { Catch, type ArgumentsHost, type WsExceptionFilter } from '@nestjs/common';
import { LockError } from '../../api/errors.js';
import { answerTo } from './lock-error-answer.js';
import { logAnswered } from './log-answered.js';

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
    logAnswered(error);
    const message = host.switchToWs();
    const client = message.getClient<Client>();
    const cause = { pattern: message.getPattern(), data: message.getData<unknown>() };
    const data = { status: 'error', ...answerTo(error), cause };
    // A WebSocket has `emit`, too, which calls listeners of this process.
    if (typeof client.readyState === 'number') client.send?.(JSON.stringify({ event: 'exception', data }));
    else client.emit?.('exception', data);
  }
}
