import type { ExecutionContext } from '@nestjs/common';
import type { Lookup, RequestRoot } from './key-template.js';

type Bag = Record<string, unknown> | undefined;

/** The parts of a request, of whatever kind of handler: HTTP, RPC, WebSocket or GraphQL. */
export function requestValues(context: ExecutionContext): Lookup {
  return (root) => VALUES[root as RequestRoot](context);
}

const VALUES: Record<RequestRoot, (context: ExecutionContext) => unknown> = {
  params: (context) => httpRequest(context)?.params,
  body: (context) => httpRequest(context)?.body,
  query: (context) => httpRequest(context)?.query,
  headers: (context) => httpRequest(context)?.headers,
  user: (context) => (context.getType<string>() === 'ws' ? socketUser(context) : httpRequest(context)?.user),
  // Both keep the payload where their own context says.
  data: (context) => (context.getType() === 'ws' ? context.switchToWs().getData() : context.switchToRpc().getData()),
  args: (context) => (context.getType<string>() === 'graphql' ? context.getArgByIndex<unknown>(1) : undefined),
};

function httpRequest(context: ExecutionContext): Bag {
  switch (context.getType<string>()) {
    case 'http':
      return context.switchToHttp().getRequest<Bag>();
    case 'graphql': {
      // A resolver's third argument is its context, in which the request stands as `req`.
      const graphql = context.getArgByIndex<{ req?: Bag } | undefined>(2);
      return graphql?.req;
    }
    default:
      return undefined;
  }
}

function socketUser(context: ExecutionContext): unknown {
  const client = context.switchToWs().getClient<{ user?: unknown; data?: { user?: unknown } } | undefined>();
  return client?.user ?? client?.data?.user;
}
