import type { ServerResponse } from 'node:http';
import { Observable, type MonoTypeOperatorFunction } from 'rxjs';

/** A request of Express or Fastify, as far as the page reads it. */
export interface PageRequest {
  url: string;
  /** As it was sent, where Express or Fastify has changed `url`. */
  originalUrl?: string;
  headers: Record<string, string | string[] | undefined>;
  /** Set by a guard or a middleware of the application. */
  user?: { id?: unknown };
}

/** A response of Express, or that of Fastify with the one of Node.js under it. */
export type PageResponse = ServerResponse | { raw: ServerResponse };

/** How long a client may take to read the end of a stream, in milliseconds. */
const READ_MS = 1_000;

/**
 * Cuts off the client of a stream that has ended, unless it reads that soon. An HTTP server that closes waits for clients that do
 * not read, such as a laptop that sleeps.
 */
export function cutOff(given: PageResponse): void {
  const response = nodeOf(given);
  const late = setTimeout(() => response.destroy(), READ_MS);
  response.once('close', () => clearTimeout(late));
}

/**
 * Sends a client that reads slowly the newest view only, as soon as it has read the last one: the others would stand in the memory of this
 * process, and the client would never catch up.
 */
export function newestFor<View>(given: PageResponse): MonoTypeOperatorFunction<View> {
  const response = nodeOf(given);
  return (views) =>
    new Observable((viewer) => {
      let newest: { view: View } | undefined;
      const send = () => {
        if (newest === undefined || isFull(response)) return;
        const { view } = newest;
        newest = undefined;
        viewer.next(view);
      };
      response.on('drain', send);
      const watching = views.subscribe({
        next: (view) => {
          newest = { view };
          send();
        },
        error: (error) => viewer.error(error),
        complete: () => viewer.complete(),
      });
      return () => {
        watching.unsubscribe();
        response.off('drain', send);
      };
    });
}

/** Whether what was written waits for the client to read. On HTTP/2 the stream under the response says it. */
function isFull(response: ServerResponse & { stream?: { writableNeedDrain?: boolean } }): boolean {
  return response.writableNeedDrain ?? response.stream?.writableNeedDrain ?? false;
}

function nodeOf(given: PageResponse): ServerResponse {
  return 'raw' in given ? given.raw : given;
}
