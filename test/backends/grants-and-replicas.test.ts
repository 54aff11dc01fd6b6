import { describe, expect, it, vi } from 'vitest';
import type { LockBackend, WaitListener } from '../../lib/core/backend/lock-backend.js';
import { RedisHandOver } from '../../lib/stores/redis/node/node-answers.js';
import type { RedisNode } from '../../lib/stores/redis/node/redis-node.js';
import type { ReplicaWait } from '../../lib/stores/redis/replicas/replica-wait.js';
import { SingleNodeBackend } from '../../lib/stores/redis/single/single-node.backend.js';

/** What those who wait are told when a node is told that a ticket was granted the lock with the token 7. */
function told({ replicas, isReady = true }: { replicas?: ReplicaWait; isReady?: boolean } = {}): unknown[] {
  let listener!: WaitListener;
  const node = {
    listen: (each: WaitListener) => (listener = each),
    openInbox: () => {},
    isReady,
  } as unknown as RedisNode;
  const heard: unknown[] = [];
  new SingleNodeBackend(node, 1_000, () => 0, replicas, vi.fn<LockBackend['report']>()).listen('key', {
    onTurn: (ticket) => heard.push([ticket, undefined]),
    onListening: () => {},
    onHandOver: (ticket, handOver) => heard.push([ticket, handOver.grantOf('key', 7, 1)?.fencingToken]),
    onTaken: () => {},
    onWarning: () => {},
  });
  listener.onHandOver(
    'ticket',
    new RedisHandOver('ticket', { fencingToken: 7, lastToken: 7, boundUs: 7 }, () => undefined),
  );
  listener.onTurn();
  return heard;
}

describe('a grant', () => {
  it('is told with its token, to begin with', () => {
    expect(told()).toEqual([
      ['ticket', 7],
      [undefined, undefined],
    ]);
  });

  it('is told without when replicas are to have it first: then it is confirmed, and waits for them', () => {
    expect(told({ replicas: { timeoutMs: 100 } as ReplicaWait })[0]).toEqual(['ticket', undefined]);
  });

  it('is told without while the server cannot be asked to extend it', () => {
    expect(told({ isReady: false })[0]).toEqual(['ticket', undefined]);
  });
});
