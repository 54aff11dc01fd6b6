import { describe, expect, it } from 'vitest';
import {
  LockContendedError,
  LockLostError,
  LockOptionsError,
  LockSelfDeadlockError,
  LockUnavailableError,
  NodeError,
  StaleTokenError,
} from 'nest-redis-lock';
import { checkKey } from '../../lib/core/keys/key.js';
import { answeredTooLate, closed } from '../../lib/core/waiting/refusals.js';
import { clientOf, redisServer } from '../support/stage.js';
import { openLocks } from '../support/open-locks.js';

/** A line break, an escape of terminals, a turn of the text, and what shows nothing. */
const FORGED = 'a\r\n[Nest] LOG all is well\u001b[2J\u0085\u2028\u202e\u2066\u200b\u2060\ufeff\u{e0041}\ud800';
const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;

describe('a text that a stranger may have chosen', () => {
  it('does not forge the message of any error, whose key stays as it is [G585]', () => {
    const holder = { owner: FORGED };
    const node = new NodeError('a:1', FORGED);
    const errors = [
      new LockContendedError(FORGED, 10, { holder, holding: [FORGED] }),
      LockUnavailableError.from('acquired', FORGED, [node]),
      LockUnavailableError.ofList([node]),
      new LockLostError(FORGED, 'stolen'),
      new LockSelfDeadlockError(FORGED),
      LockSelfDeadlockError.underLeader(FORGED),
      new StaleTokenError(7, { key: FORGED }),
      answeredTooLate(FORGED, 10, 20),
      closed(FORGED),
      new LockOptionsError(`there is no option ${FORGED}`),
      thrownBy(() => checkKey(`}${FORGED}`)),
      thrownBy(() => checkKey(FORGED.repeat(100))),
    ];
    for (const error of errors) {
      expect(error.message).not.toMatch(UNSAFE);
      expect([undefined, FORGED]).toContain((error as LockOptionsError).key);
    }
    expect(errors[0]!.stack).not.toMatch(UNSAFE);
    expect(node.message).not.toMatch(UNSAFE);
  });

  it('makes no long message of the value of another program, however long that is [G586]', async () => {
    const redis = await redisServer();
    const locks = await openLocks({ redis: redis.url });
    const value = 'x'.repeat(5_000_000);
    await clientOf(redis).set('lock:{order:17}', value);
    const error = await locks.acquire('order:17', { waitMs: 0 }).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(LockContendedError);
    const { message, stack, holder } = error as LockContendedError;
    expect(message).toMatch(/is held by owner "x{200}… \(4999800 more characters\)" \(its lease runs without end\)/);
    expect(message.length).toBeLessThan(1_000);
    expect(stack!.length).toBeLessThan(1_000);
    expect(holder!.owner).toHaveLength(5_000_000);
  });
});

function thrownBy(act: () => void): Error {
  try {
    act();
  } catch (error) {
    return error as Error;
  }
  throw new Error('nothing was thrown');
}
