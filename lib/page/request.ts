import type { ServerResponse } from 'node:http';

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
  const response = 'raw' in given ? given.raw : given;
  const late = setTimeout(() => response.destroy(), READ_MS);
  response.once('close', () => clearTimeout(late));
}
