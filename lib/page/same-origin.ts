import { ForbiddenException, UnsupportedMediaTypeException } from '@nestjs/common';
import type { PageRequest } from './request.js';

/**
 * Refuses a request that another site made the browser send, with the cookies of the viewer.
 * @throws ForbiddenException unless the page itself sent it
 * @throws UnsupportedMediaTypeException unless it is JSON, which a form cannot send
 */
export function refuseForeign({ headers }: PageRequest): void {
  const site = headers['sec-fetch-site'];
  // Browsers omit the header on plain HTTP, except for localhost.
  if (
    site === undefined ? !isOwnOrigin(headers.origin, headers.host ?? headers[':authority']) : site !== 'same-origin'
  ) {
    throw new ForbiddenException(
      'Only the page itself may send this request. A proxy must forward the headers Host and Origin.',
    );
  }
  const type = headers['content-type'];
  if (typeof type !== 'string' || !/^application\/json\s*(;|$)/i.test(type)) {
    throw new UnsupportedMediaTypeException('Expected application/json.');
  }
}

/** @param origin `https://example.com`; `host` is what was asked: `example.com` */
function isOwnOrigin(origin: unknown, host: unknown): boolean {
  if (typeof origin !== 'string' || typeof host !== 'string') return false;
  try {
    const { protocol, host: sender } = new URL(origin);
    return sender !== '' && sender === new URL(`${protocol}//${host}`).host; // without the port that is the default one
  } catch {
    return false; // such as the origin "null"
  }
}
