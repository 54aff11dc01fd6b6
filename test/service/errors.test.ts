import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import {
  LockContendedError,
  LockError,
  LockKeyError,
  LockLostError,
  LockOptionsError,
  LockSelfDeadlockError,
  LockUnavailableError,
  NodeError,
  StaleTokenError,
} from 'nest-redis-lock';
import { checkKey } from '../../lib/core/keys/key.js';
import { answeredTooLate, closed } from '../../lib/core/locks/refusals.js';
import { openLocks } from '../support/open-locks.js';
import { clientOf, redisServer } from '../support/stage.js';

const holder = { owner: 'web-3/17/random/1', host: 'web-3', pid: 17 };
const causes = [new NodeError('a:1', 'down'), new NodeError('b:2', 'hangs')];

it.each<[LockError, string, number, string | undefined]>([
  [new LockContendedError('k', 10, { holder }), 'LOCK_CONTENDED', 409, 'k'],
  [LockUnavailableError.from('acquired', 'k', []), 'LOCK_UNAVAILABLE', 503, 'k'],
  [new LockLostError('k', 'expired'), 'LOCK_LOST', 503, 'k'],
  [new LockSelfDeadlockError('k'), 'LOCK_SELF_DEADLOCK', 500, 'k'],
  [new LockKeyError('no key', 400), 'LOCK_KEY', 400, undefined],
  [new LockKeyError('no key'), 'LOCK_KEY', 500, undefined],
  [new LockOptionsError('no option'), 'LOCK_OPTIONS', 500, undefined],
])('every error has a code, an HTTP status, the key, and a name: %s', (error, code, status, key) => {
  expect(error).toBeInstanceOf(LockError);
  expect(error).toMatchObject({ code, status, statusCode: status, key, expose: false, name: error.constructor.name });
});

describe('the message', () => {
  const ADVICE = ' To do something else instead, use tryAcquire, or onContended of @Locked.';
  const keptUntil = new Date(Date.UTC(2027, 0, 2, 3, 4, 5, 678));

  it.each<[what: string, error: LockError, message: string]>([
    [
      'of a contended lock says who holds it, for how long, and what to do',
      new LockContendedError('k', 10.4, { holder, remainingMs: 20.6 }),
      'Lock "k" is held by pid 17 on web-3 (its lease runs for another 21 ms); gave up after waiting 10 ms. ' +
        `Raise waitMs, or shorten the work under the lock.${ADVICE}`,
    ],
    [
      'of a lock whose holder is unknown says that others hold it',
      new LockContendedError('k', 1),
      `Lock "k" is held by others; gave up after waiting 1 ms. Raise waitMs, or shorten the work under the lock.${ADVICE}`,
    ],
    [
      'of a lock that is kept says until when, and by whom',
      new LockContendedError('k', 10.4, { holder, remainingMs: 20.6, keptUntil }),
      'Lock "k" is kept until 2027-01-02T03:04:05.678Z by the holdMs of pid 17 on web-3; ' +
        `gave up after waiting 10 ms. Raise waitMs, or lower holdMs.${ADVICE}`,
    ],
    [
      'of an unavailable lock names each node and its problem, and what to check',
      LockUnavailableError.from('acquired', 'k', causes),
      'Lock "k" could not be acquired: a:1: down; b:2: hangs. Check that a:1 and b:2 can be reached.',
    ],
    [
      'of an unavailable lock gives each advice once',
      LockUnavailableError.from('acquired', 'k', [
        causes[0]!,
        new NodeError('c:3', 'votes late', 'Wait.'),
        new NodeError('d:4', 'votes late', 'Wait.'),
      ]),
      'Lock "k" could not be acquired: a:1: down; c:3: votes late; d:4: votes late. Wait. Check that a:1 can be reached.',
    ],
    [
      'of a refusal names the method that asked, once',
      new LockContendedError('k', 10, { holder: { owner: 'x' } }).of('Orders.pay').of('Orders.payAll'),
      `Orders.pay: Lock "k" is held by owner "x"; gave up after waiting 10 ms. Raise waitMs, or shorten the work under the lock.${ADVICE}`,
    ],
  ])('%s', (_, error, message) => {
    expect(error.message).toBe(message);
  });

  it.each(['expired', 'stolen', 'forced', 'unavailable', 'stalled', 'overstayed', 'shutdown', 'released'] as const)(
    'of a lost lock says why: %s',
    (reason) => {
      const start = new RegExp(`^Lock "k" is no longer held \\(${reason}\\): \\w.+\\. Stop the work`);
      expect(new LockLostError('k', reason).message).toMatch(start);
    },
  );
});

it('a refusal keeps for programs what it knows, with times in whole milliseconds', () => {
  const contended = new LockContendedError('k', 10.4, { holder, remainingMs: 20.6 });
  expect(contended).toMatchObject({ holder, waitedMs: 10, remainingMs: 21 });
  const unavailable = LockUnavailableError.from('acquired', 'k', causes);
  expect([unavailable.causes, unavailable.cause]).toEqual([causes, causes[0]]);
});

it.each([
  ['a contended lock', new LockContendedError('k', 10, { holder, remainingMs: 20 })],
  ['an unavailable lock', LockUnavailableError.from('acquired', 'k', causes)],
  ['a node', causes[0]!],
])(
  'a refusal of %s is printed as one line, which is its stack, too; an error of the caller keeps its stack',
  (_, error) => {
    const line = `${error.name}: ${error.message}`;
    expect(inspect(error)).toBe(line);
    expect(error.stack).toBe(line);
    expect(inspect({ error }, { breakLength: Infinity })).toBe(`{ error: ${line} }`);
    expect(inspect(new LockOptionsError('no option'))).toContain('errors.test.ts');
  },
);

/** A line break, an escape sequence of terminals, a change of the text direction, and an invisible character. */
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

  it('keeps messages short, however long the value of another program is [G586]', async () => {
    const redis = await redisServer();
    const locks = await openLocks({ redis: redis.url });
    const value = 'x'.repeat(5_000_000);
    await clientOf(redis).set('lock:{order:17}', value);
    const error = await locks.acquire('order:17', { waitMs: 0 }).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(LockContendedError);
    const { message, stack, holder } = error as LockContendedError;
    expect(message).toMatch(/is held by owner "x{200}… \(4999800 more characters\)" \(its lease does not expire\)/);
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
