import type { ExecutionContext } from '@nestjs/common';
import type { Lookup, RequestRoot } from '../../core/keys/key-template.js';

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
  data: messageData,
  args: (context) => (context.getType<string>() === 'graphql' ? context.getArgByIndex<unknown>(1) : undefined),
};

function httpRequest(context: ExecutionContext): Bag {
  switch (context.getType<string>()) {
    case 'http':
      return context.switchToHttp().getRequest<Bag>();
    case 'graphql': {
      // A resolver's third argument is its context, with the request as `req`.
      const graphql = context.getArgByIndex<{ req?: Bag } | undefined>(2);
      return graphql?.req;
    }
    default:
      return undefined;
  }
}

function messageData(context: ExecutionContext): unknown {
  switch (context.getType<string>()) {
    case 'rpc':
      return context.switchToRpc().getData();
    case 'ws':
      return context.switchToWs().getData();
    default:
      return undefined;
  }
}

function socketUser(context: ExecutionContext): unknown {
  const client = context.switchToWs().getClient<{ user?: unknown; data?: { user?: unknown } } | undefined>();
  return client?.user ?? client?.data?.user;
}
