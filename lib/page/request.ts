import type { ServerResponse } from 'node:http';
import { Observable, type MonoTypeOperatorFunction } from 'rxjs';

/** The parts of an Express or Fastify request that the page reads. */
export interface PageRequest {
  url: string;
  /** The URL as it was sent, since Express or Fastify may change `url`. */
  originalUrl?: string;
  headers: Record<string, string | string[] | undefined>;
  /** Set by a guard or a middleware of the application. */
  user?: { id?: unknown };
}

/** A response of Express, or a reply of Fastify with the Node.js response inside. */
export type PageResponse = ServerResponse | { raw: ServerResponse };

/** Milliseconds that a client may take to read the end of a stream. */
const READ_MS = 1_000;

/**
 * Disconnects the client of a stream that has ended, unless it soon reads the end. Otherwise an HTTP server that closes would wait
 * for clients that do not read, such as a laptop that sleeps.
 */
export function cutOff(given: PageResponse): void {
  const response = nodeOf(given);
  const late = setTimeout(() => response.destroy(), READ_MS);
  response.once('close', () => clearTimeout(late));
}

/**
 * Skips views for a client that reads slowly: it gets only the newest view, once it has read the last one. Otherwise views would
 * accumulate in memory, and the client would never catch up.
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

/** Whether written data waits for the client to read it. On HTTP/2, the stream under the response knows. */
function isFull(response: ServerResponse & { stream?: { writableNeedDrain?: boolean } }): boolean {
  return response.writableNeedDrain ?? response.stream?.writableNeedDrain ?? false;
}

function nodeOf(given: PageResponse): ServerResponse {
  return 'raw' in given ? given.raw : given;
}
