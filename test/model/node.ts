import type { Vote } from '../../lib/stores/redis/node/lock-scripts.js';
import type { RedisNode } from '../../lib/stores/redis/node/redis-node.js';

export type Raise = Awaited<ReturnType<RedisNode['raiseFence']>>;

/** The answer of a node to an extension. */
export interface Extension {
  readonly status: 'extended' | 'restored' | 'absent' | 'foreign';
}

/** A lock on a node: the parts of its value. */
export interface Lock {
  readonly owner: string;
  /** The token that the node voted for, or that it was raised to. */
  readonly token: number;
  /** The + at the end: its queue may have waiters. */
  readonly isAwaited: boolean;
}

/** What a node of a Redlock knows about one key. Nothing here is ever changed: a script creates a new one. */
export interface KeyOnNode {
  readonly lock?: Lock;
  /** The counter, which other keys share. */
  readonly fence?: number;
}

/** A request for a vote, and the node that it is sent to. */
export interface Proposed {
  proposal: number;
  /** The time of the node, and how far a proposal may differ from it. */
  clock: number;
  limit: number;
  /** Whether the attempt waits in the queue if it is refused. */
  hasPlace?: boolean;
}

type Run<Answer> = readonly [KeyOnNode, Answer];

/**
 * The scripts of lib/stores/redis/scripts/lua as functions. test/model/model.test.ts compares them with the Lua.
 */
export const SCRIPTS = {
  vote(node: KeyOnNode, owner: string, { proposal, clock, limit, hasPlace = false }: Proposed): Run<Vote> {
    const { lock, fence } = node;
    if (lock?.owner === owner) return [node, { status: 'granted', fencingToken: lock.token }]; // the command ran twice
    if (lock) {
      const after = hasPlace ? { ...node, lock: { ...lock, isAwaited: true } } : node;
      return [after, { status: 'refused', owner: lock.owner, remainingMs: 1 }];
    }
    const token = Math.max((fence ?? 0) + 1, Math.min(Math.max(proposal, clock - limit), clock + limit));
    return [
      { lock: { owner, token, isAwaited: hasPlace }, fence: token },
      { status: 'granted', fencingToken: token, nodeTimeUs: token === proposal ? undefined : clock },
    ];
  },

  raise(node: KeyOnNode, owner: string, token: number): Run<Raise> {
    const { lock, fence } = node;
    if (lock?.owner !== owner || lock.token > token || fence === undefined) return [node, { status: 'gone' }];
    return [{ lock: { ...lock, token }, fence: Math.max(fence, token) }, { status: 'raised' }];
  },

  extend(node: KeyOnNode, owner: string): Run<Extension> {
    return [node, { status: !node.lock ? 'absent' : node.lock.owner === owner ? 'extended' : 'foreign' }];
  },

  restore(node: KeyOnNode, owner: string, token: number): Run<Extension> {
    if (node.lock) return SCRIPTS.extend(node, owner);
    return [{ ...node, lock: { owner, token, isAwaited: true } }, { status: 'restored' }];
  },

  release(node: KeyOnNode, owner: string): Run<{ readonly status: 'released' | 'gone' }> {
    return node.lock?.owner === owner ? [{ fence: node.fence }, { status: 'released' }] : [node, { status: 'gone' }];
  },
};

export type Scripts = typeof SCRIPTS;
