import { describe, expect, it } from 'vitest';
import { Proposals } from '../../lib/stores/redis/redlock/proposals.js';

/** The wall time of this process when its clock stands at 0: microseconds are milliseconds with three digits more. */
const ORIGIN_MS = 1_800_000_000_000;
const ORIGIN_US = ORIGIN_MS * 1_000;
const SECOND_US = 1_000_000;
const HOUR_US = 3_600 * SECOND_US;

function proposals() {
  return new Proposals({ originMs: ORIGIN_MS });
}

describe('The proposals of a Redlock', () => {
  it('a proposed token is the time of this process while nothing is known of the nodes', () => {
    expect(proposals().next(5.25)).toBe(ORIGIN_US + 5_250);
  });

  it('proposals rise, also two of the same microsecond', () => {
    const proposed = proposals();
    expect([proposed.next(1), proposed.next(1), proposed.next(1)]).toEqual([0, 1, 2].map((n) => ORIGIN_US + 1_000 + n));
  });

  it('proposals follow the nodes when the clock of this process is wrong', () => {
    const proposed = proposals();
    for (const node of [0, 1, 2]) proposed.learnTime({ node, timeUs: ORIGIN_US + HOUR_US + node, askedAt: 0 });
    expect(proposed.next(1)).toBe(ORIGIN_US + HOUR_US + 1 + 1_000);
  });

  it('proposals follow neither a node that is an hour ahead nor one that is an hour behind', () => {
    const proposed = proposals();
    const aheadUs = [HOUR_US, -HOUR_US, 30, 10, 20];
    for (let askedAt = 0; askedAt < 10; askedAt++) {
      proposed.next(askedAt);
      for (const [node, us] of aheadUs.entries()) {
        const timeUs = ORIGIN_US + askedAt * 1_000 + us;
        // Each takes the proposal as far as its limit allows it; the one ahead is at a counter that is far ahead, too.
        const votes = [timeUs - SECOND_US, timeUs + SECOND_US, timeUs + 1, timeUs + 1, timeUs + 1];
        proposed.learnVote(votes[node]!, { node, timeUs, askedAt });
      }
    }
    expect(proposed.next(20) - ORIGIN_US).toBe(20_000 + 20);
    proposed.learnVote(ORIGIN_US + 30_000, { node: 3, timeUs: ORIGIN_US + 21_010, askedAt: 21 });
    expect(proposed.next(22) - ORIGIN_US).toBe(30_001); // the tokens of others are still followed
  });

  it('proposals go above the tokens of other processes that a vote was for', () => {
    const proposed = proposals();
    const seen = ORIGIN_US + 0.8 * SECOND_US;
    proposed.learnVote(seen, { node: 0, timeUs: ORIGIN_US, askedAt: 0 });
    expect(proposed.next(0)).toBe(seen + 1);
    expect(proposed.next(900)).toBe(ORIGIN_US + 900_000);
  });

  it('proposals do not follow a counter that is nearly as far ahead of its node as a vote may be', () => {
    const proposed = proposals();
    proposed.learnVote(ORIGIN_US + 0.95 * SECOND_US, { node: 0, timeUs: ORIGIN_US, askedAt: 0 });
    expect(proposed.next(0)).toBe(ORIGIN_US);
  });

  it('proposals return to the time of the nodes once one that was wrong turns out to be an exception', () => {
    const proposed = proposals();
    proposed.learnTime({ node: 0, timeUs: ORIGIN_US + HOUR_US, askedAt: 0 });
    expect(proposed.next(0)).toBe(ORIGIN_US + HOUR_US);
    proposed.learnTime({ node: 1, timeUs: ORIGIN_US + 7, askedAt: 0 });
    expect(proposed.next(0)).toBe(ORIGIN_US + 7);
    expect(proposed.next(0)).toBe(ORIGIN_US + 8);
  });

  it.each([NaN, Infinity, -1, 0, 1.5])(
    'proposals do not follow a node that says it is at %d microseconds',
    (timeUs) => {
      const proposed = proposals();
      proposed.learnTime({ node: 0, timeUs, askedAt: 0 });
      proposed.learnVote(ORIGIN_US, { node: 0, timeUs, askedAt: 0 });
      expect(proposed.next(1)).toBe(ORIGIN_US + 1_000);
    },
  );

  it('proposals take the last time that a node was at', () => {
    const proposed = proposals();
    proposed.learnTime({ node: 0, timeUs: ORIGIN_US + HOUR_US, askedAt: 0 });
    proposed.learnTime({ node: 0, timeUs: ORIGIN_US + 50, askedAt: 0 });
    expect(proposed.next(0)).toBe(ORIGIN_US + 50);
  });
});
