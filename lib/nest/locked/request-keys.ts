import { Logger, type ExecutionContext } from '@nestjs/common';
import { LockKeyError } from '../../api/errors.js';
import type { Lookup, RequestRoot } from '../../core/keys/key.js';

type UnknownRequest = Record<string, unknown> | undefined;

/** Looks up parts of the request of a handler for HTTP, GraphQL, messages or websockets. */
export function requestValues(context: ExecutionContext): Lookup {
  return (root) => VALUES[context.getType<string>()]?.(context, root as RequestRoot);
}

const VALUES: Record<string, (context: ExecutionContext, root: RequestRoot) => unknown> = {
  http: (context, root) => ofHttp(context.switchToHttp().getRequest<UnknownRequest>(), root),
  graphql: (context, root) => {
    if (root === 'args') return context.getArgByIndex<unknown>(1);
    // The third argument of a resolver is its context, which has the request as `req`.
    return ofHttp(context.getArgByIndex<{ req?: UnknownRequest } | undefined>(2)?.req, root);
  },
  rpc: (context, root) => (root === 'data' ? context.switchToRpc().getData<unknown>() : undefined),
  ws: (context, root) => {
    if (root === 'data') return context.switchToWs().getData<unknown>();
    if (root !== 'user') return undefined;
    const client = context.switchToWs().getClient<{ user?: unknown; data?: { user?: unknown } } | undefined>();
    return client?.user ?? client?.data?.user;
  },
};

function ofHttp(request: UnknownRequest, root: RequestRoot): unknown {
  return root === 'data' || root === 'args' ? undefined : request?.[root];
}

/** Warns once about each part of a request that the key of a decorator needs and a request lacks. */
export class MissingKeyWarnings {
  readonly #warnedOf = new Set<string>();

  /** @param context the context of the log */
  constructor(private readonly context: string) {}

  /**
   * Adds the decorator and the method to the error of a key, and logs a warning once for each missing part. With a misspelt template,
   * each request fails as if its client had left something out, and nothing else reveals the mistake.
   * @param where the decorator and its method: `@Locked on Orders.pay`
   * @returns any other error unchanged
   */
  explain(where: string, error: unknown): unknown {
    if (!(error instanceof LockKeyError)) return error;
    const { status, cause, field } = error;
    const message = `${where}: ${error.message.charAt(0).toLowerCase()}${error.message.slice(1)} The method did not run.`;
    if (field !== undefined && !this.#warnedOf.has(field)) {
      this.#warnedOf.add(field);
      new Logger(this.context).warn(
        `${message} If no request has {${field}}, correct the key. Further requests without it are not logged here.`,
      );
    }
    return new LockKeyError(message, status as 400 | 500, { cause, field });
  }
}
