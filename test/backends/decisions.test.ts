import { describe, expect, it } from 'vitest';
import {
  validatedRaise,
  tallyAttempt,
  tallyExtension,
  tallyRelease,
  type StartedWriteBack,
  type Raise,
} from '../../lib/stores/redis/redlock/decisions.js';
import type { Vote } from '../../lib/stores/redis/node/lock-scripts.js';

const QUORUM = 2;
const REFUSED: Vote = { status: 'refused', owner: 'other', remainingMs: 1_000 };

function granted(fencingToken: number): Vote {
  return { status: 'granted', fencingToken };
}

/** Undefined stands for an answer that is still missing. */
function asked<Answer>(...answers: (Answer | undefined)[]): { answers: (Answer | undefined)[]; open: number } {
  return { answers, open: answers.filter((answer) => answer === undefined).length };
}

function begun(fencingToken: number, ...answers: (Raise['status'] | undefined)[]): StartedWriteBack {
  const raises = answers.map((status) => (status === undefined ? undefined : ({ status } as Raise)));
  return { fencingToken, raises: asked(...raises) };
}

function decided(votes: (Vote | undefined)[], writeBack?: StartedWriteBack) {
  return tallyAttempt(asked(...votes), QUORUM, false, writeBack);
}

describe('The decision on an attempt of a Redlock', () => {
  it('a token that a majority voted for is issued, also if another node voted for a higher one', () => {
    expect(decided([granted(5), granted(9), granted(5)])).toEqual({ status: 'issued', fencingToken: 5 });
  });

  it('the highest token of a majority is written back where its votes differ, also to nodes whose votes are open', () => {
    expect(decided([granted(5), granted(9), undefined])).toEqual({
      status: 'write-back',
      fencingToken: 9,
      to: [0, 1, 2],
    });
    expect(decided([granted(5), granted(9), REFUSED])).toMatchObject({ to: [0, 1] });
  });

  it('a token is issued once a majority has recorded it', () => {
    const votes = [granted(5), granted(9), undefined];
    expect(decided(votes, begun(9, undefined, 'raised', undefined))).toBeUndefined();
    expect(decided(votes, begun(9, 'raised', 'raised', undefined))).toEqual({ status: 'issued', fencingToken: 9 });
  });

  it('a token that a majority votes for is issued during the write-back of another token, even after that has failed', () => {
    const votes = [granted(5), granted(9), granted(5)];
    expect(decided(votes, begun(9, 'raised', undefined, undefined))).toEqual({ status: 'issued', fencingToken: 5 });
    expect(decided(votes, begun(9, 'gone', 'gone', 'gone'))).toEqual({ status: 'issued', fencingToken: 5 });
  });

  it('an attempt whose write-back has failed is not refused while its votes may still agree', () => {
    const failed = begun(9, 'gone', 'gone', undefined);
    expect(decided([granted(5), granted(9), undefined], failed)).toBeUndefined();
    expect(decided([granted(5), granted(9), granted(7)], failed)).toEqual({ status: 'contended', queued: false });
    expect(decided([granted(5), granted(9), REFUSED], failed)).toEqual({ status: 'contended', queued: false });
  });

  it('a refusal says that the lock is kept, and for how long, if a majority keeps it', () => {
    const kept: Vote = { ...REFUSED, remainingMs: 500, isKept: true };
    const refusal = { status: 'contended', owner: 'other', queued: false };
    expect(decided([kept, REFUSED, kept])).toEqual({ ...refusal, isKept: true, remainingMs: 500 });
    expect(decided([kept, kept, undefined])).toEqual({ ...refusal, isKept: true, remainingMs: 500 });
    expect(decided([kept, REFUSED, REFUSED])).toEqual({ ...refusal, remainingMs: 1_000 });
    expect(decided([kept, REFUSED, undefined])).toEqual({ ...refusal, remainingMs: 1_000 });
  });

  it.each<[what: string, vote: Vote, counts: boolean]>([
    ['voted for less', granted(8), true],
    ['voted for the token', granted(9), true],
    ['voted for more', granted(10), false],
    ['refused its vote', REFUSED, false],
  ])('a node that has recorded a token, and %s, counts only if its vote was not above it', (_what, vote, counts) => {
    expect(validatedRaise({ status: 'raised' }, vote, 9)).toEqual({ status: counts ? 'raised' : 'gone' });
  });
});

/** The answer of a node in one letter: done, no longer its owner's, no answer. */
const ANSWERS = {
  d: { done: 'extended', release: 'released' },
  n: { done: 'lost', release: 'gone' },
  f: { done: 'unavailable', release: 'unavailable' },
} as const;

it.each([
  ['dd.', 'done'],
  ['nn.', 'not'],
  ['dnf', 'unknown'],
  ['nf.', undefined],
  ['df.', undefined],
  ['nff', 'unknown'],
])('a Redlock of 3 reports what a majority says: for %s it says %s', (letters, says) => {
  const given = [...letters].map(
    (letter) => ANSWERS[letter as keyof typeof ANSWERS] as (typeof ANSWERS)['d'] | undefined,
  );
  const open = given.filter((each) => each === undefined).length;
  const fault = { causes: [], mayHaveRun: true, disconnected: true };
  const extension = tallyExtension(
    given.map((each) => each && ({ status: each.done, reason: 'expired', sentAt: 5, ...fault } as never)),
    open,
    QUORUM,
  );
  const release = tallyRelease(
    given.map((each) => each && ({ status: each.release, ...fault } as never)),
    open,
    QUORUM,
  );
  const WORDS = { done: ['extended', 'released'], not: ['lost', 'gone'], unknown: ['unavailable', 'unavailable'] };
  expect([extension?.status, release?.status]).toEqual(
    says === undefined ? [undefined, undefined] : WORDS[says as keyof typeof WORDS],
  );
});
