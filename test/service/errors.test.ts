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
} from 'nest-redis-lock';
import { parseOwner } from '../../lib/api/holder.js';
import { processName } from '../../lib/compose/process-name.js';
import { openLocks } from '../support/open-locks.js';
import { ownerSequence } from '../../lib/core/engine/lock-engine.js';

const holder = { owner: 'web-3/17/random/1', host: 'web-3', pid: 17 };

describe('every error', () => {
  it.each<[LockError, string, number, string | undefined]>([
    [new LockContendedError('k', 10, { holder, remainingMs: 20 }), 'LOCK_CONTENDED', 409, 'k'],
    [LockUnavailableError.from('acquired', 'k', []), 'LOCK_UNAVAILABLE', 503, 'k'],
    [new LockLostError('k', 'expired'), 'LOCK_LOST', 503, 'k'],
    [new LockSelfDeadlockError('k'), 'LOCK_SELF_DEADLOCK', 500, 'k'],
    [new LockKeyError('no key', 400), 'LOCK_KEY', 400, undefined],
    [new LockKeyError('no key'), 'LOCK_KEY', 500, undefined],
    [new LockOptionsError('no option'), 'LOCK_OPTIONS', 500, undefined],
  ])('has a code, an HTTP status, the key, and a name: %s', (error, code, status, key) => {
    expect(error).toBeInstanceOf(LockError);
    expect(error).toMatchObject({ code, status, statusCode: status, key, expose: false });
    expect(error.name).toBe(error.constructor.name);
  });
});

describe('the message', () => {
  it('of a contended lock says who holds it, for how long, and what to do', () => {
    expect(new LockContendedError('k', 10.4, { holder, remainingMs: 20.6 }).message).toBe(
      'Lock "k" is held by pid 17 on web-3 (its lease runs for another 21 ms); gave up after waiting 10 ms. ' +
        'Raise waitMs, or shorten the work under the lock. ' +
        'To do something else instead, use tryAcquire, or onContended of @Locked.',
    );
    expect(new LockContendedError('k', 1, { holder: { owner: 'x' } }).message).toContain(
      'is held by owner "x"; gave up after waiting',
    );
    expect(new LockContendedError('k', 1).message).toContain('is held by others; gave up after waiting');
  });

  it('of a contended lock that this process holds says so', async () => {
    const locks = await openLocks({ memory: true });
    await using _held = await locks.acquire('k');
    const refused = locks.acquire('k', { waitMs: 0 });
    await expect(refused).rejects.toThrow(
      /^Lock "k" is held by pid \d+ on \S+, which is this process \(its lease runs/,
    );
    await locks.withLock('k2', async () => {
      await expect(locks.acquire('k', { waitMs: 0 })).rejects.toThrow('which is this process');
    });
    await using _kept = await locks.acquire('kept', { holdMs: 60_000 });
    await _kept.release();
    await expect(locks.acquire('kept', { waitMs: 0 })).rejects.toThrow(
      /is kept until \S+ by the holdMs of pid \d+ on \S+;/,
    );
  });

  it('of a lock that is kept says until when, by whom, and what to do', () => {
    const keptUntil = new Date(Date.UTC(2027, 0, 2, 3, 4, 5, 678));
    expect(new LockContendedError('k', 10.4, { holder, remainingMs: 20.6, keptUntil }).message).toBe(
      'Lock "k" is kept until 2027-01-02T03:04:05.678Z by the holdMs of pid 17 on web-3; ' +
        'gave up after waiting 10 ms. Raise waitMs, or lower holdMs. ' +
        'To do something else instead, use tryAcquire, or onContended of @Locked.',
    );
  });

  it('of an unavailable lock gives each advice once, and says of which servers to check that they can be reached', () => {
    const message = (...causes: NodeError[]) => LockUnavailableError.from('acquired', 'k', causes).message;
    const down = new NodeError('a:1', 'down');
    const [wait, waitToo] = [new NodeError('b:2', 'votes late', 'Wait.'), new NodeError('c:3', 'votes late', 'Wait.')];
    const [hung, dead] = [new NodeError('d:4', 'hangs'), new NodeError('e:5', 'dead')];
    expect(message(down, down)).toMatch(/: down\. Check that a:1 can be reached\.$/);
    expect(message(down, hung)).toMatch(/: hangs\. Check that a:1 and d:4 can be reached\.$/);
    expect(message(down, hung, dead)).toMatch(/: dead\. Check that a:1, d:4 and e:5 can be reached\.$/);
    expect(message()).toMatch(/: no node answered\. Check that its nodes can be reached\.$/);
    expect(message(wait, waitToo)).toMatch(/; c:3: votes late\. Wait\.$/);
    expect(message(down, wait, waitToo)).toMatch(/; c:3: votes late\. Wait\. Check that a:1 can be reached\.$/);
  });

  it('of an unavailable lock names each node and its problem; the first is the cause', () => {
    const causes = [new NodeError('a:1', 'down'), new NodeError('b:2', 'hangs')];
    const error = LockUnavailableError.from('acquired', 'k', causes);
    expect(error.message).toContain('Lock "k" could not be acquired: a:1: down; b:2: hangs.');
    expect(error.cause).toBe(causes[0]);
  });

  it.each(['expired', 'stolen', 'forced', 'unavailable', 'stalled', 'overstayed', 'shutdown', 'released'] as const)(
    'of a lost lock says why: %s',
    (reason) => {
      expect(new LockLostError('k', reason).message).toMatch(
        new RegExp(`^Lock "k" is no longer held \\(${reason}\\): \\w.+\\. Stop the work`),
      );
    },
  );
});

describe('a contended lock', () => {
  it('tells times in whole milliseconds', () => {
    expect(new LockContendedError('k', 10.4, { holder, remainingMs: 20.6 })).toMatchObject({
      waitedMs: 10,
      remainingMs: 21,
    });
    expect(new LockContendedError('k', 10, { holder, remainingMs: Infinity }).remainingMs).toBe(Infinity);
    expect(new LockContendedError('k', 10, { holder }).remainingMs).toBeUndefined();
  });
});

describe('an owner value', () => {
  it('is another one for each acquisition, and tells the process', () => {
    const [next, another] = [ownerSequence(processName()), ownerSequence(processName())];
    const owners = [next(), next(), another(), another()];
    expect(new Set(owners).size).toBe(4);
    for (const owner of owners) expect(parseOwner(owner)).toMatchObject({ owner, pid: process.pid });
  });

  it('of another form is kept as it is', () => {
    for (const owner of ['', 'x', 'a/b/c/d', 'host/12/random', 'ho st/12/random/1']) {
      expect(parseOwner(owner)).toEqual({ owner });
    }
  });
});

describe('a refusal', () => {
  const causes = [new NodeError('a:1', 'down'), new NodeError('b:2', 'hangs')];

  it.each([
    ['a contended lock', new LockContendedError('k', 10, { holder, remainingMs: 20 })],
    ['an unavailable lock', LockUnavailableError.from('acquired', 'k', causes)],
    ['a node', causes[0]!],
  ])('of %s is printed as one line, which is its stack, too', (_what, error) => {
    const line = `${error.name}: ${error.message}`;
    expect(inspect(error)).toBe(line);
    expect(error.stack).toBe(line);
    expect(inspect({ error }, { breakLength: Infinity })).toBe(`{ error: ${line} }`);
  });

  it('keeps its causes for programs', () => {
    const error = LockUnavailableError.from('acquired', 'k', causes);
    expect([error.causes, error.cause]).toEqual([causes, causes[0]]);
    expect(error.causes.map(({ node, problem }) => `${node} ${problem}`)).toEqual(['a:1 down', 'b:2 hangs']);
  });

  it('names the method that asked, once', () => {
    const error = new LockContendedError('k', 10, { holder }).of('Orders.pay').of('Orders.payAll');
    expect(error.method).toBe('Orders.pay');
    expect(error.message).toMatch(/^Orders\.pay: Lock "k" is held by/);
    expect(error.stack).toBe(`LockContendedError: ${error.message}`);
  });
});

it('an error of the caller keeps its stack', () => {
  expect(inspect(new LockOptionsError('no option'))).toContain('errors.test.ts');
});
