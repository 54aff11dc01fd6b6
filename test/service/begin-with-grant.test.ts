import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { AcquireOptions, RedisSource } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { haveWaited } from '../support/queue.js';
import { scriptCalls } from '../support/script-calls.js';
import { blockEventLoop, clientOf, proxyTo } from '../support/stage.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, ownerOf, untilQueued } = await sceneOfFile();

/** Two services; the second one listens for its turns. */
async function services(redis: RedisSource) {
  const locks = await open();
  const others = await openLocks({ redis, commandTimeoutMs: 10_000 });
  await haveWaited(server, others);
  return { locks, others };
}

/** It waits for a lock, through a proxy. */
async function waits(key: string, options: AcquireOptions = {}) {
  const proxy = await proxyTo(server);
  const client = clientOf(proxy);
  const { locks, others } = await services(client);
  const holder = await locks.acquire(key);
  const waiting = others.acquire(key, options);
  await untilQueued(key);
  return { proxy, locks, holder, waiting };
}

/** It was handed the lock, and none of its requests has come through since. */
async function handed(key: string) {
  const { proxy, locks, holder, waiting } = await waits(key);
  proxy.hold(); // published messages still come through
  await holder.release();
  return { proxy, locks, lock: await waiting };
}

async function untilAskedAgain(times: number): Promise<void> {
  await server.resetCalls();
  await until(async () => (await scriptCalls(server)) === times, { what: 'it has asked again' });
}

describe('a call that is handed a lock', () => {
  it('a waiter that was handed a lock has lost it when the grant has ended and no extension was answered, and nothing is left behind [G101]', async () => {
    const { proxy, locks, lock } = await handed('in-vain');
    await until(() => lock.signal.aborted, { what: 'it is lost', timeoutMs: 5_000 });
    expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'unavailable' });
    expect(lock.isHeld).toBe(false);
    const next = await locks.acquire('in-vain', { waitMs: 5_000 });
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    proxy.release();
    expect(await lock.release()).toBe(false);
    expect(await ownerOf('in-vain')).toBe(next.owner);
    await next.release();
  });

  it('begins with a grant also after it has asked again, and its lease counts from before the last time that was refused [G620]', async () => {
    const { proxy, holder, waiting } = await waits('asked again');
    proxy.roundTripMs = 200; // the store needs its time
    await untilAskedAgain(3);
    await sleep(300);
    proxy.hold();
    await holder.release();
    const { remainingMs } = await waiting;
    proxy.release();
    // The remainder of the 2 s less 1 % + 2 ms: the time of the request, the time since then, and the time of the
    // message.
    expect(remainingMs).toBeLessThanOrEqual(1_978 - 100 - 300 - 100);
    expect(remainingMs).toBeGreaterThan(1_978 - 100 - 300 - 100 - 50);
  });

  it.each<[string, (key: string) => Promise<unknown>]>([
    [
      'its place was lost before: it may have been granted the lock',
      (key) => server.command('DEL', `lock:{${key}}:queue`),
    ],
    [
      'another connection has answered since, perhaps that of another server',
      () => server.command('CLIENT', 'KILL', 'TYPE', 'normal'),
    ],
  ])('confirms a grant first when %s [G621]', async (what, happen) => {
    const key = what.slice(0, 7);
    const { proxy, holder, waiting } = await waits(key);
    let isGranted = false;
    void waiting.then(() => (isGranted = true));
    await untilAskedAgain(1);
    await happen(key);
    await untilAskedAgain(2);
    proxy.hold();
    await holder.release();
    await sleep(300);
    expect(isGranted).toBe(false);
    proxy.release();
    await (await waiting).release();
  });

  type TokensOf = (tokenNow: number) => [first: number, last: number];

  /**
   * A forged message says that a held lock was handed over to the waiting call, with these tokens: the call then asks
   * the store.
   */
  async function isConfirmedFirst(tokensOf: TokensOf): Promise<void> {
    const { locks, others } = await services(server.url);
    const holder = await locks.acquire('forged');
    const waiting = others.acquire('forged');
    await untilQueued('forged');
    const [entry] = (await server.command('ZRANGE', 'lock:{forged}:queue', '0', '+inf', 'BYSCORE')) as [string];
    const [, channel, ticket] = entry.split(/[ ~]/) as [string, string, string];
    await server.resetCalls();
    const [first, last] = tokensOf(holder.fencingToken);
    await server.command('PUBLISH', channel, `${ticket} ${first} ${last} ${first}`);
    await until(async () => (await scriptCalls(server)) > 0, { what: 'it asks Redis', timeoutMs: 500 });
    expect((await server.calls()).pexpire ?? 0).toBe(1); // the length of the queue: no lock was extended
    expect(await ownerOf('forged')).toBe(holder.owner);
    await holder.release();
    const lock = await waiting;
    expect(lock.fencingToken).toBeGreaterThan(holder.fencingToken);
    expect(lock.fencingToken).toBeLessThan(holder.fencingToken + 3_600_000_000);
    await lock.release();
  }

  it.each<[string, TokensOf]>([
    ['token is far ahead of what its server has said', (token) => [token + 4_000_000, token + 4_000_000]],
    ['token is behind what its server has said', (token) => [token - 1, token - 1]],
  ])('a hand-over whose %s is confirmed before the work begins [G530]', (_what, tokensOf) =>
    isConfirmedFirst(tokensOf),
  );

  it('confirms a grant first that names more tokens than its place is for [G622]', () =>
    isConfirmedFirst((token) => [token + 1_000_000, token + 1_000_001]));

  it.each([
    ['is refused a lock', 'exclusive', 1],
    ['and who shares it are refused a lock', 'shared', 2],
  ] as const)(
    '%s that is lost before a client that sends later has asked to extend it, and no work runs [G857]',
    async (_, mode, calls) => {
      const key = `lost-first-${mode}`;
      const { locks, others } = await services({ url: server.url });
      const holder = await locks.acquire(key);
      const granted = new Promise<void>((resolve) =>
        others.events$.subscribe((event) => void (event.type === 'acquired' && event.key === key && resolve())),
      );
      void granted.then(() => blockEventLoop(2_300));
      let ran = 0;
      const working = Array.from({ length: calls }, () => others.withLock(key, { mode }, () => void ran++));
      await untilQueued(key);
      await holder.release();
      const refusal = {
        code: 'LOCK_UNAVAILABLE',
        message: expect.stringContaining('the lock was lost again before the call could begin') as string,
      };
      for (const each of await Promise.allSettled(working)) expect(each).toMatchObject({ reason: refusal });
      expect(ran).toBe(0);
      expect(await ownerOf(key)).toBeNull();
    },
  );

  it('a waiter keeps the lock that it was handed when it is busy from the first moment on for longer than the grant lasts', async () => {
    const { locks, others } = await services(server.url);
    const holder = await locks.acquire('busy');
    let isHeld: boolean | undefined;
    const working = others.withLock('busy', (lock) => {
      blockEventLoop(2_300);
      isHeld = lock.isHeld; // nothing was read meanwhile: nobody can report it
      return 'done';
    });
    await untilQueued('busy');
    await holder.release();
    expect(await working).toBe('done');
    expect(isHeld).toBe(false);
    expect(await ownerOf('busy')).toBeNull();
  });

  it('begins even if a client that sends later has written the extension, and the process is busy before it reads the answer [G1061]', async () => {
    const { locks, others } = await services({ url: server.url });
    const holder = await locks.acquire('busy-between');
    let turns = 0;
    others.events$.subscribe(({ type }) => void (type === 'acquired' && turns++));
    const eachTurn = () => {
      if (turns > 0) turns++;
      if (turns > 2) blockEventLoop(2_300);
      else setImmediate(eachTurn);
    };
    setImmediate(eachTurn);
    const working = others.withLock('busy-between', ({ isHeld }) => isHeld);
    await untilQueued('busy-between');
    await holder.release();
    expect(await working).toBe(true);
    expect(await ownerOf('busy-between')).toBeNull();
  });
});
