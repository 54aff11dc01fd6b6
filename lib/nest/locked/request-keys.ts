import { Logger, type ExecutionContext } from '@nestjs/common';
import { LockKeyError } from '../../api/errors.js';
import type { Lookup, RequestRoot } from '../../core/keys/key.js';

type UnknownRequest = Record<string, unknown> | undefined;

/** The parts of a request, of whatever kind of handler. */
export function requestValues(context: ExecutionContext): Lookup {
  return (root) => VALUES[context.getType<string>()]?.(context, root as RequestRoot);
}

/** By the kind of handler. */
const VALUES: Record<string, (context: ExecutionContext, root: RequestRoot) => unknown> = {
  http: (context, root) => ofHttp(context.switchToHttp().getRequest<UnknownRequest>(), root),
  graphql: (context, root) => {
    if (root === 'args') return context.getArgByIndex<unknown>(1);
    // A resolver's third argument is its context, with the request as `req`.
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

/** The keys that one decorator could not make. */
export class MissingKeyWarnings {
  /** The parts of requests that a warning has named. */
  readonly #warnedOf = new Set<string>();

  /** @param context that of the log */
  constructor(private readonly context: string) {}

  /**
   * The error of a key that could not be made, with its place named. A template that is misspelt makes each request fail as if its
   * client had left something out, and nothing else shows it: so this logs a warning, once for each part that a request lacks.
   * @param where the decorator and its method: `@Locked on Orders.pay`
   * @returns any other error as it is
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
