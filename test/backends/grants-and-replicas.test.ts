import { describe, expect, it } from 'vitest';
import type { RedisClient, SubscriptionListener } from '../../lib/stores/redis/client/redis-client.js';
import type { RedisConnection } from '../../lib/stores/redis/client/redis-connection.js';
import { RedisNode } from '../../lib/stores/redis/node/redis-node.js';
import { placeOf } from '../support/claims.js';

/** What those who wait are told when a server says that a ticket was granted the lock with the token 7. */
function told({ awaitedReplicas = 0, isReady = true, handsOver = true } = {}): unknown[] {
  let subscription!: SubscriptionListener;
  const client = {
    topology: { isCluster: false, keyPrefix: '', routeOf: () => ['only'] },
    messages: {
      subscribe: (_channel: string, _name: string, listener: SubscriptionListener) => {
        subscription = listener;
        return { close: () => {} };
      },
    },
  } as unknown as RedisClient;
  const node = new RedisNode({ client, isReady } as RedisConnection, {
    keyPrefix: 'lock',
    commandTimeoutMs: 1_000,
    processName: 'me',
    handsOver,
    awaitedReplicas,
    needsAdmission: false,
  });
  const heard: unknown[] = [];
  node.listen('key', {
    onTurn: (ticket, handOver) => heard.push([ticket, handOver?.grantOf('key', placeOf('ticket'), 7)?.fencingToken]),
    onListening: () => {},
    onTaken: () => {},
    onWarning: () => {},
  });
  subscription.message('ticket 7 7 7', 'channel');
  subscription.opened();
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
    expect(told({ awaitedReplicas: 1 })[0]).toEqual(['ticket', undefined]);
  });

  it('is told without while the server cannot be asked to extend it', () => {
    expect(told({ isReady: false })[0]).toEqual(['ticket', undefined]);
  });

  it('is told without by a node of a Redlock, which cannot grant alone', () => {
    expect(told({ handsOver: false })[0]).toEqual(['ticket', undefined]);
  });
});
