import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { acquireOn, claimOn, connected, freshKey, granted, placeOf, releaseOn } from '../support/claims.js';

const NOON = Date.parse('2026-01-01T12:00:00.000Z');

let backend: LockBackend;
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: NOON });
  backend = await connected({ memory: true });
});
afterEach(async () => {
  await backend.close();
  vi.useRealTimers();
});

/** The token of a lock of its own. */
const token = async () => (await granted(backend, claimOn(freshKey()))).fencingToken;

/** Takes a lock for this many turns, gives it back, and returns the tokens of the first and the last. */
async function block(key: string, turns: number): Promise<[first: number, last: number]> {
  const claim = claimOn(key);
  const outcome = await acquireOn(backend, claim, placeOf(claim.owner, turns));
  await releaseOn(backend, claim);
  if (outcome.status !== 'acquired') throw new Error(`not acquired: ${JSON.stringify(outcome)}`);
  return [outcome.grant.fencingToken!, outcome.grant.lastToken!];
}

it('the fencing token of a lock in memory is the time of its grant in microseconds, so a restart begins above earlier tokens', async () => {
  expect(await token()).toBe(NOON * 1_000);
  vi.setSystemTime(NOON + 250);
  expect(await token()).toBe((NOON + 250) * 1_000);
  await backend.close();
  vi.setSystemTime(NOON + 251);
  backend = await connected({ memory: true });
  expect(await token()).toBe((NOON + 251) * 1_000);
});

it('locks in memory that are granted in the same millisecond have different fencing tokens, which grow', async () => {
  expect([await token(), await token(), await token()]).toEqual([NOON * 1_000, NOON * 1_000 + 1, NOON * 1_000 + 2]);
});

it('the next holder of a lock in memory has a larger fencing token when the clock was set back, and the time again when that is later', async () => {
  const key = freshKey();
  const [before] = await block(key, 1);
  vi.setSystemTime(NOON - 3_600_000);
  const [after] = await block(key, 1);
  expect(after).toBe(before + 1);
  vi.setSystemTime(0);
  expect(await token()).toBe(after + 1);
  vi.setSystemTime(NOON + 1);
  expect(await token()).toBe((NOON + 1) * 1_000);
});

it('the fencing tokens of several turns follow one another from the time of the grant, and those of the next grant are above them', async () => {
  const key = freshKey();
  const [first, last] = await block(key, 5_000);
  expect([first, last]).toEqual([NOON * 1_000, NOON * 1_000 + 4_999]);
  vi.setSystemTime(NOON + 1); // the block reaches beyond this
  expect(await block(key, 2)).toEqual([last + 1, last + 2]);
});
