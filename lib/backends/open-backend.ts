import { LockOptionsError } from '../errors.js';
import type { RedisSource } from '../options.js';
import type { ResolvedOptions } from '../resolve-options.js';
import type { LockBackend } from './lock-backend.js';
import { MemoryBackend } from './memory.backend.js';
import { RedisConnection } from './redis-connection.js';
import { RedisNode, type NodeSettings } from './redis-node.js';
import { RedlockBackend } from './redlock.backend.js';
import { SingleNodeBackend } from './single-node.backend.js';

const DEFAULT_COMMAND_TIMEOUT_MS = 1_000;

/**
 * Makes the backend that the options ask for, and its clients; connects to nothing yet.
 * @param now the clock that `sentAt` is read from, in milliseconds
 * @param processName under which the owner values of this service are made
 */
export async function openBackend(
  options: ResolvedOptions,
  now: () => number,
  processName: string,
): Promise<LockBackend> {
  const { backend, keyPrefix, fair } = options;
  switch (backend.kind) {
    case 'memory':
      return new MemoryBackend(now);
    case 'redis': {
      const commandTimeoutMs = options.commandTimeoutMs ?? DEFAULT_COMMAND_TIMEOUT_MS;
      const [node] = await openNodes([backend.source], {
        keyPrefix,
        commandTimeoutMs,
        processName,
        handsOver: true,
        fair,
      });
      return new SingleNodeBackend(node!, commandTimeoutMs, now);
    }
    case 'redlock': {
      // A node that is slow must not eat up the validity of the others' votes.
      const nodeTimeoutMs = options.commandTimeoutMs ?? Math.round(Math.min(200, Math.max(50, options.ttlMs * 0.05)));
      const nodes = await openNodes(backend.sources, {
        keyPrefix,
        commandTimeoutMs: nodeTimeoutMs,
        processName,
        handsOver: false,
        fair: false,
      });
      const twice = nodes.find(({ name }, index) => nodes.findIndex((node) => node.name === name) < index);
      if (twice) {
        for (const { connection } of nodes) connection.close();
        throw new LockOptionsError(`redlock needs independent masters: got ${twice.name} twice.`);
      }
      return new RedlockBackend(nodes, nodeTimeoutMs, now);
    }
  }
}

async function openNodes(sources: RedisSource[], settings: NodeSettings): Promise<RedisNode[]> {
  const opening = await Promise.allSettled(sources.map((source) => RedisConnection.open(source)));
  const connections = opening.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const failure = opening.find((result) => result.status === 'rejected');
  if (failure) {
    for (const connection of connections) connection.close();
    throw failure.reason;
  }
  return connections.map((connection) => new RedisNode(connection, settings));
}
