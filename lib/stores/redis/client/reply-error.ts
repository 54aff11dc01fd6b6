import { ReplyError } from 'ioredis';

/**
 * Whether Redis answered with this error. By class where the application was bundled together with ioredis, whose errors
 * are called as their classes, which a minifier renames; by name where the application has an ioredis of its own.
 */
export function isReplyError(error: unknown): boolean {
  return error instanceof Error && (error instanceof ReplyError || error.name === 'ReplyError');
}
