import type { IncomingMessage, ServerResponse } from 'node:http';

/** A request of Express or Fastify, as far as the page reads it. */
export interface PageRequest {
  url: string;
  /** As it was sent, where Express or Fastify has changed `url`. */
  originalUrl?: string;
  headers: Record<string, string | string[] | undefined>;
  /** Set by a guard or a middleware of the application. */
  user?: { id?: unknown };
  /** That of Node.js under that of Fastify. */
  raw?: IncomingMessage;
}

/** A response of Express, or that of Fastify with the one of Node.js under it. */
export type PageResponse = ServerResponse | { raw: ServerResponse };

/** How long a client may take to read the end of a stream, in milliseconds. */
const READ_MS = 1_000;

/**
 * Closes the connection of a stream that ends. An HTTP server that closes waits for those of clients that do not read, such as a
 * laptop that sleeps, and for some seconds for one whose stream ends just then.
 */
export function closeAfter(request: PageRequest, given: PageResponse): void {
  const response = 'raw' in given ? given.raw : given;
  const { socket } = response;
  const late = setTimeout(() => response.destroy(), READ_MS);
  response.once('close', () => clearTimeout(late));
  // The connections of HTTP/2 are shared with other requests.
  if ((request.raw ?? (request as IncomingMessage)).httpVersionMajor === 1) {
    response.once('finish', () => socket?.destroySoon());
  }
}
