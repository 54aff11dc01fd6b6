import type { NodeExtension, NodeRelease, Vote } from '../../lib/stores/redis/node/node-answers.js';
import type { RedisNode } from '../../lib/stores/redis/node/redis-node.js';

export type Raise = Awaited<ReturnType<RedisNode['raiseFence']>>;

/** What a node of a Redlock knows of one key. Nothing here is ever changed: what a script does makes a new one. */
export interface KeyOnNode {
  readonly owner?: string;
  readonly fence?: number;
}

type Run<Answer> = readonly [KeyOnNode, Answer];

/** The scripts of lib/scripts as functions. test/model/conformance.test.ts holds them against the Lua. */
export const SCRIPTS = {
  /**
   * @param clock the server's time, which a counter starts at that is absent, or
   * @param votesFrom below this time: the node voted from then on
   */
  vote(node: KeyOnNode, owner: string, clock: number, votesFrom: number): Run<Vote> {
    if (node.owner !== undefined && node.owner !== owner) {
      return [node, { status: 'refused', owner: node.owner, remainingMs: 1 }];
    }
    const next = (node.fence ?? 0) + 1;
    const fence = node.fence === undefined || next < votesFrom ? Math.max(clock, next) : next;
    return [
      { owner, fence },
      { status: 'granted', fencingToken: fence },
    ];
  },

  raise(node: KeyOnNode, owner: string, token: number): Run<Raise> {
    if (node.owner !== owner) return [node, { status: 'gone' }];
    return [{ owner, fence: Math.max(node.fence ?? 0, token) }, { status: 'raised' }];
  },

  extend(node: KeyOnNode, owner: string, mode: 'keep' | 'restore'): Run<NodeExtension> {
    if (node.owner === owner) return [node, { status: 'extended' }];
    if (node.owner !== undefined) return [node, { status: 'foreign' }];
    return mode === 'restore' ? [{ ...node, owner }, { status: 'restored' }] : [node, { status: 'absent' }];
  },

  release(node: KeyOnNode, owner: string): Run<NodeRelease> {
    return node.owner === owner ? [{ fence: node.fence }, { status: 'released' }] : [node, { status: 'gone' }];
  },
};

export type Scripts = typeof SCRIPTS;
