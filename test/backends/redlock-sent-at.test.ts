import { expect, it, vi } from 'vitest';
import type { ExtendOutcome, LockBackend } from 'nest-redis-lock/testing';
import type { NodeExtension, Vote } from '../../lib/stores/node/answers.js';
import { Proposals } from '../../lib/stores/redis/redlock/proposals.js';
import { RedlockBackend } from '../../lib/stores/redis/redlock/redlock.backend.js';
import type { Answered, RedlockNode } from '../../lib/stores/redis/redlock/redlock-node.js';
import { acquireOn, claimOn } from '../support/claims.js';

/** When the question to a node was sent, as it may have had to wait in this process, and the answer. */
interface Sent {
  isGranted: boolean;
  sentAt: number;
}

function sent(...nodes: string[]): Sent[] {
  return nodes.map((node) => ({ isGranted: node.startsWith('granted'), sentAt: Number(node.split(' ')[1]) }));
}

/** A Redlock that is asked at 0, and whose nodes answer one after the other. */
function redlock(nodesSent: readonly Sent[]): LockBackend {
  const nodes = nodesSent.map(({ isGranted, sentAt }, at) => ({
    isReady: true,
    node: { isListening: () => false },
    acquire(_attempt: unknown, _request: unknown, _value: string, done: Answered<Vote>) {
      const granted: Vote = { status: 'granted', fencingToken: 1 };
      const refused: Vote = { status: 'refused', owner: 'other', remainingMs: 1_000 };
      queueMicrotask(() => done(isGranted ? granted : refused, sentAt, at));
    },
    extend(_attempt: unknown, _ttlMs: number, done: Answered<NodeExtension>) {
      queueMicrotask(() => done({ status: isGranted ? 'extended' : 'absent' }, sentAt, at));
    },
    mend: () => {},
  }));
  const [proposals, report] = [new Proposals(), vi.fn<LockBackend['report']>()];
  return new RedlockBackend({
    nodes: nodes as unknown as readonly RedlockNode[],
    nodeTimeoutMs: 100,
    now: () => 0,
    proposals,
    report,
    longestMs: 1_000,
  });
}

const CASES: [string, number, Sent[]][] = [
  ['the first of those that granted it', 7, sent('granted 20', 'granted 7', 'refused 3')],
  ['the first, though that was the last to answer', 5, sent('refused 1', 'granted 9', 'granted 5')],
];

it.each(CASES)('A lock of a Redlock counts from when its vote was sent to %s', async (_which, sentAt, nodes) => {
  expect(await acquireOn(redlock(nodes), claimOn('key'))).toMatchObject({ status: 'acquired', sentAt });
});

it.each(CASES)('A lock of a Redlock is extended from when that was sent to %s', async (_which, sentAt, nodes) => {
  const grant = { ...claimOn('key'), fencingToken: 1 };
  const outcome = await new Promise<ExtendOutcome>((resolve) =>
    redlock(nodes).extend({ grant, ttlMs: 1_000 }, resolve),
  );
  expect(outcome).toMatchObject({ status: 'extended', sentAt });
});
