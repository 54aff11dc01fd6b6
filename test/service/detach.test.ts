import { randomUUID } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { inspect } from 'node:util';
import { Logger } from '@nestjs/common';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { LockEvent, LockParcel, LockService, ParcelOptions } from 'nest-redis-lock';
import { fromPromises, type Transfer } from 'nest-redis-lock/testing';
import { digestOf } from '../../lib/api/holder.js';
import { EXCLUSIVE } from '../../lib/core/backend/lock-backend.js';
import { logProblems } from '../../lib/nest/module/log-problems.js';
import { ToyBackend } from '../contract/toy-backend.js';
import { acquireOn, claimOn, connected, extendOn, granted, now, releaseOn, transferOn } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { openLocks, serviceOn } from '../support/open-locks.js';
import { queued } from '../support/queue.js';
import { redisServers } from '../support/stage.js';
import { counterOn } from '../support/stored.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const HOUR = { ttlMs: 3_600_000 };
const LOST = (reason: string) => ({ code: 'LOCK_LOST', reason });
const REFUSED = (message: string) => ({ code: 'LOCK_OPTIONS', message: expect.stringContaining(message) as string });

const { server, open, openBehindProxy, ownerOf, leftMs, untilQueued } = await sceneOfFile();
beforeAll(async () => {
  const locks = await connected({ redis: server.url }); // the server knows the scripts from now on
  const claim = claimOn('scripts');
  await granted(locks, claim);
  await transferOn(locks, claim, claim, { mints: false });
  await extendOn(locks, claim);
  await releaseOn(locks, claim);
  await locks.close();
});

async function detached(locks: LockService, key: string, ttlMs = HOUR.ttlMs): Promise<LockParcel> {
  return (await locks.acquire(key)).detach({ ttlMs });
}

const free = (key: string) => until(async () => (await ownerOf(key)) === null, { what: `"${key}" is free` });
const fails = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    () => expect.unreachable('it should fail'),
    (error: unknown) => error,
  );

describe('a lock that is detached', () => {
  it('is adopted with a larger token, is extended from then on, and is released as any other [G816]', async () => {
    const [sender, receiver] = [await open(), await open({ ttlMs: 600 })];
    const lock = await sender.acquire('adopted');
    const parcel = await lock.detach(HOUR);
    expect(parcel.fencingToken).toBe(lock.fencingToken);
    const adopted = await receiver.adopt(JSON.parse(JSON.stringify(parcel)) as LockParcel);
    expect(adopted.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(await counterOn(server)).toBe(adopted.fencingToken);
    expect(await ownerOf('adopted')).toBe(adopted.owner);
    await until(async () => (await leftMs('adopted')) <= 600, { what: 'it ends with its new holder' });
    const first = adopted.remainingMs;
    await until(() => adopted.remainingMs < first - 50, { what: 'a while' });
    await until(() => adopted.remainingMs > first - 50, { what: 'an extension' });
    expect(await adopted.release()).toBe(true);
    expect(await ownerOf('adopted')).toBeNull();

    const again = await detached(sender, 'adopted');
    const result = await receiver.withAdopted(again, (held) => {
      expect(receiver.current('adopted').fencingToken).toBe(held.fencingToken);
      return 'done';
    });
    expect(result).toBe('done');
    expect(await ownerOf('adopted')).toBeNull();
  });

  it('ends with its new holder, not later, because it is extended as soon as it is adopted [G1002]', async () => {
    const [sender, receiver] = [await open(), await open({ ttlMs: 600_000 })];
    const adopted = await receiver.adopt(await detached(sender, 'ends'));
    await until(async () => (await leftMs('ends')) <= 600_000, { what: 'it is free' });
    expect(await adopted.release()).toBe(true);
  });

  it('is adopted by only one of all calls that try, in any process, two hundred times [G817]', async () => {
    const services = await Promise.all([open(), open(), open()]);
    let last = 0;
    for (let round = 0; round < 200; round++) {
      const parcel = await detached(services[round % 3]!, 'race');
      const tries = services.flatMap((service) => [service.adopt(parcel), service.adopt(parcel)]);
      const outcomes = await Promise.allSettled(tries);
      const winners = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
      const losers = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as object] : []));
      expect(winners).toHaveLength(1);
      for (const loser of losers) expect(loser).toMatchObject(LOST('stolen'));
      const [winner] = winners;
      expect(winner!.isHeld).toBe(true);
      expect(winner!.fencingToken).toBeGreaterThan(Math.max(last, parcel.fencingToken));
      last = winner!.fencingToken;
      expect(await winner!.release()).toBe(true);
    }
  });

  it('is not changed by commands of its old owner that come late: extensions, releases, attempts, and what gives up a place [G818]', async () => {
    const locks = await open();
    const store = await connected({ redis: server.url });
    onTestFinished(() => store.close());
    const lock = await locks.acquire('late');
    const { key, owner } = lock;
    const parcel = await lock.detach(HOUR);
    const late = { key, owner, ttlMs: 20 };
    const place = { ticket: owner, hold: EXCLUSIVE, turns: 1, calls: 1, arrivedAt: performance.now(), isTaken: true };
    const sendAll = async (holder: string) => {
      expect(await extendOn(store, late)).toEqual({ status: 'lost', reason: 'stolen' });
      expect(await releaseOn(store, late)).toEqual({ status: 'gone' });
      expect(await releaseOn(store, late, 20)).toEqual({ status: 'gone' });
      expect(await acquireOn(store, { ...late })).toMatchObject({ status: 'contended', owner: holder });
      store.waitQueue!.leave(key, place);
      const retried = { key, from: owner, to: 'detached/host/1/other', ttlMs: 20, mints: false };
      expect(await store.transfer!(retried)).toEqual({ status: 'lost', reason: 'stolen' });
      expect(await ownerOf(key)).toBe(holder);
      expect(await leftMs(key)).toBeGreaterThan(10_000);
    };
    await sendAll(parcel.owner);
    const adopted = await locks.adopt(parcel);
    await sendAll(adopted.owner);
    await adopted.release();
  });

  it('cannot be adopted, extended or released when its ttl has passed, whether another call holds it or not [G819]', async () => {
    const locks = await open();
    const parcel = await detached(locks, 'over', 100);
    await free('over');
    await expect(locks.adopt(parcel)).rejects.toMatchObject(LOST('expired'));
    await expect(locks.extend(parcel, HOUR)).rejects.toMatchObject(LOST('expired'));
    expect(await locks.release(parcel)).toBe(false);
    const next = await locks.acquire('over');
    await expect(locks.adopt(parcel)).rejects.toMatchObject(LOST('stolen'));
    await expect(locks.extend(parcel, HOUR)).rejects.toMatchObject(LOST('stolen'));
    expect(await locks.release(parcel)).toBe(false);
    expect(next.isHeld).toBe(true);
    expect(await ownerOf('over')).toBe(next.owner);
    await next.release();
  });

  it('stays detached when its application closes [G824]', async () => {
    const sender = await open();
    const parcel = await detached(sender, 'shutdown');
    await sender.onApplicationShutdown();
    expect(await ownerOf('shutdown')).toBe(parcel.owner);
    await expect(sender.adopt(parcel)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(await ownerOf('shutdown')).toBe(parcel.owner);
    const receiver = await open();
    expect(await (await receiver.adopt(parcel)).release()).toBe(true);
  });

  it('is not detached with options or in a state that do not allow it [G827]', async () => {
    const locks = await open();
    const { signal } = new AbortController();
    const wrong: [unknown, string][] = [
      [undefined, 'detach needs { ttlMs }'],
      [{}, 'ttlMs must be'],
      [{ ttlMs: 0 }, 'ttlMs must be'],
      [{ ttlMs: 86_400_001 }, 'ttlMs must be'],
      [{ ttlMs: 1_000, signal }, 'no option "signal"'],
    ];
    for (const [options, message] of wrong) {
      const lock = await locks.acquire('options');
      await expect(lock.detach(options as ParcelOptions)).rejects.toMatchObject(REFUSED(message));
      expect(lock.isHeld).toBe(true);
      await lock.release();
    }

    await locks.withLock('nested', async (outer) => {
      await locks.withLock('nested', async (inner) => {
        await expect(inner.detach(HOUR)).rejects.toMatchObject(REFUSED('2 calls of this process hold it'));
        await expect(outer.detach(HOUR)).rejects.toMatchObject(REFUSED('2 calls of this process hold it'));
      });
      expect(outer.isHeld).toBe(true);
    });

    const set = await locks.acquireAll(['one', 'other']);
    await expect(set.get('one').detach(HOUR)).rejects.toMatchObject(REFUSED('acquired together with others'));
    await set.release();

    const kept = await locks.acquire('held-on', { holdMs: 100 });
    await expect(kept.detach(HOUR)).rejects.toMatchObject(REFUSED('holdMs'));
    await kept.release();
    await free('held-on');
  });

  it('on a Redlock is refused, and says why', async () => {
    const servers = await redisServers(3);
    const locks = await openLocks({ redlock: servers.map(({ url }) => url) });
    const lock = await locks.acquire('redlock');
    await expect(lock.detach(HOUR)).rejects.toMatchObject(REFUSED('On a Redlock, a majority of the nodes'));
    expect(lock.isHeld).toBe(true);
    const parcel = await detached(await open(), 'redlock');
    await expect(locks.adopt(parcel)).rejects.toMatchObject(REFUSED('cannot be adopted. On a Redlock'));
    await lock.release();
  });
});

describe('calls that wait for a lock that is detached', () => {
  it('see how long it remains valid, keep their order, and get it when the adopter releases it, in each process [G828]', async () => {
    const [sender, receiver, third] = await Promise.all([open(), open(), open()]);
    const lock = await sender.acquire('queue');
    const order: string[] = [];
    const waits = (service: LockService, name: string) =>
      service.withLock('queue', { waitMs: 600_000 }, () => void order.push(name));
    const calls = [waits(third, 'third')];
    await untilQueued('queue');
    calls.push(waits(receiver, 'receiver'));
    await untilQueued('queue', 2);
    calls.push(waits(sender, 'sender')); // waits in its own process until the lock is detached
    const parcel = await lock.detach(HOUR);
    await untilQueued('queue', 3);
    const seen = async () => {
      const refused = await fails(third.acquire('queue', { waitMs: 1 }));
      return (refused as { remainingMs: number }).remainingMs > 3_500_000;
    };
    await until(seen, { what: 'the check of a process that waits has shown for how long it stands' });
    expect(await sender.inspect('queue')).toMatchObject({
      holder: { detached: true },
      waiters: 1,
      waitingProcesses: [{}, {}, {}],
    });
    const adopted = await receiver.adopt(parcel); // next to a waiting call of its own
    expect(await queued(server, 'queue')).toBe(3);
    expect(await server.command('GET', 'lock:{queue}')).toMatch(/\+$/); // a process that releases it looks into the queue
    await adopted.extend(60_000);
    expect(order).toEqual([]);
    expect(await adopted.release()).toBe(true);
    await Promise.all(calls);
    expect(order).toEqual(['third', 'receiver', 'sender']);
    await until(() => sender.size + receiver.size + third.size === 0, { what: 'nothing is kept' });
  });

  it('get it when it was deleted, or taken by force, although a call of their process had adopted it, which loses it at once', async () => {
    const [locks, operator] = [await open({ ttlMs: 60_000 }), await open()];
    for (const end of ['deleted', 'forced']) {
      const parcel = await detached(locks, end);
      const waiting = locks.acquire(end, { waitMs: 600_000 });
      await untilQueued(end);
      const adopted = await locks.adopt(parcel);
      await (end === 'forced' ? operator.forceRelease(end) : server.command('DEL', `lock:{${end}}`));
      const next = await waiting;
      expect([adopted.isHeld, adopted.signal.aborted, next.isHeld]).toEqual([false, true, true]);
      expect(next.fencingToken).toBeGreaterThan(adopted.fencingToken);
      expect(await adopted.release()).toBe(false);
      expect(await ownerOf(end)).toBe(next.owner);
      await next.release();
    }
  });

  it('get it though the loss of the adopted lock makes the first of them give up', async () => {
    const [locks, others] = [await open({ ttlMs: 60_000 }), await open()];
    const parcel = await detached(locks, 'give up');
    const controller = new AbortController();
    const first = locks.withLock('give up', { waitMs: 600_000, signal: controller.signal }, () => 'first');
    await untilQueued('give up');
    const next = locks.withLock('give up', { waitMs: 600_000 }, () => 'next');
    const adopted = await locks.adopt(parcel);
    adopted.signal.addEventListener('abort', () => controller.abort(new Error('given up')));
    await others.forceRelease('give up');
    await first.catch(() => {});
    expect(await next).toBe('next');
    expect(await adopted.release()).toBe(false);
  });
});

describe('a lock that is being detached', () => {
  /** A lock on a store that answers a transfer once the gate is open. */
  async function slowToDetach() {
    const [toy, answers] = [new ToyBackend(now), new Gate()];
    const { transfer } = toy;
    let asked = 0;
    toy.transfer = async (request) => {
      const outcome = await transfer.call(toy, request);
      asked++;
      await answers.opened;
      return outcome;
    };
    const locks = serviceOn(fromPromises(toy, now));
    return { locks, answers, asked: () => until(() => asked, { what: 'it is asked' }) };
  }

  it('is not taken to be held by a nested call, whenever that comes', async () => {
    for (let turns = 0; turns < 60; turns++) {
      const { locks, answers, asked } = await slowToDetach();
      await locks.withLock('k', async (lock) => {
        const detaching = lock.detach(HOUR);
        await asked();
        answers.open();
        for (let turn = 0; turn < turns; turn++) await Promise.resolve();
        const nested = locks.withLock('k', { waitMs: 0, onLost: 'ignore' }, async (inner) => {
          await detaching;
          return inner.isHeld;
        });
        await expect(nested).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
      });
    }
  });

  it('is released once all attempts to detach it have ended, though one was refused at once', async () => {
    const { locks, answers, asked } = await slowToDetach();
    const lock = await locks.acquire('k');
    const detaching = lock.detach(HOUR);
    await asked();
    expect(await fails(lock.detach({} as never))).toMatchObject({ code: 'LOCK_OPTIONS' });
    const released = lock.release();
    answers.open();
    const { owner } = await detaching;
    expect(await released).toBe(false);
    const seen = await locks.inspect('k');
    expect([seen!.holder.detached, seen!.digest]).toEqual([true, digestOf(owner)]);
  });
});

describe('a reply that is lost', () => {
  it('of detach: without any answer the lock is lost here, remains in the store, and is released as soon as the store answers [G820]', async () => {
    const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 500 });
    const others = await open();
    const lock = await locks.acquire('no-detach');
    const work = locks.withLock('loses', async (mine) => {
      proxy.dropReplies();
      await mine.detach(HOUR).catch(() => {});
      return 'result';
    });
    await expect(work).rejects.toMatchObject({ ...LOST('unavailable'), outcome: { value: 'result' } });
    // Nothing can be sent any more, so nothing has happened to this one.
    await expect(lock.detach(HOUR)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect([lock.isHeld, lock.signal.aborted]).toEqual([true, false]);
    expect(await ownerOf('loses')).toMatch(/^detached\//);
    const waiting = others.acquire('loses', { waitMs: 600_000 });
    await untilQueued('loses');
    expect(await ownerOf('loses')).toMatch(/^detached\//);
    proxy.passReplies();
    const next = await waiting;
    expect(next.isHeld).toBe(true);
    await next.release();
    await lock.release();
    await free('no-detach');
  });

  it('of adopt: without any answer the parcel gets the lock back, and can be adopted again [G821]', async () => {
    const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 300 });
    const parcel = await detached(await open(), 'no-adopt');
    proxy.dropReplies();
    await expect(locks.adopt(parcel)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(await ownerOf('no-adopt')).not.toBe(parcel.owner);
    proxy.passReplies();
    await until(async () => (await ownerOf('no-adopt')) === parcel.owner, {
      what: 'the parcel has the lock again',
    });
    expect(await leftMs('no-adopt')).toBeGreaterThan(3_000_000);
    const adopted = await until(() => locks.adopt(parcel).catch(() => undefined), { what: 'it is adopted' });
    expect(await adopted.release()).toBe(true);
    await until(() => locks.size === 0, { what: 'nothing is left to undo' });
  });

  it('of adopt: the same process adopts again as soon as the store answers, though the first try is not undone yet [G998]', async () => {
    class SilentStore extends ToyBackend {
      isSilent = false;
      override async transfer(request: Transfer) {
        const outcome = await super.transfer(request);
        if (this.isSilent) throw new Error('no answer');
        return outcome;
      }
    }
    const store = new SilentStore(now, 0);
    const locks = serviceOn(fromPromises(store, now, 50));
    const parcel = await detached(locks, 'again-adopt');
    store.isSilent = true;
    const tries = () => Promise.allSettled([locks.adopt(parcel), locks.adopt(parcel)]);
    for (const each of await tries()) expect(each).toMatchObject({ reason: { code: 'LOCK_UNAVAILABLE' } });
    store.isSilent = false;
    const two = await tries();
    const [adopted, ...more] = two.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    expect(more).toEqual([]);
    await until(() => locks.size === 2, { what: 'nothing is left to undo' }); // its queue, and its lease
    await adopted!.extend();
    expect(await adopted!.release()).toBe(true);
  });

  it.each([
    ['longer', 60_000, HOUR.ttlMs, 3_000_000, 3_600_000],
    ['shorter', HOUR.ttlMs, 60_000, 50_000, 60_000],
  ])(
    'of adopt: a parcel that was extended by a %s time has the rest of that time [G999]',
    async (name, ttlMs, extended, least, most) => {
      const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 300 });
      const sender = await open();
      const key = `left-${name}`;
      const parcel = await detached(sender, key, ttlMs);
      await sender.extend(parcel, { ttlMs: extended });
      proxy.dropReplies();
      await expect(locks.adopt(parcel)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      proxy.passReplies();
      await until(async () => (await ownerOf(key)) === parcel.owner, { what: 'the parcel has the lock again' });
      const left = await leftMs(key);
      expect(left).toBeGreaterThan(least);
      expect(left).toBeLessThanOrEqual(most);
      expect(await sender.release(parcel)).toBe(true);
    },
  );

  it('of adopt: it is undone when the store can be reached again, not after a pause [G1000]', async () => {
    class SilentStore extends ToyBackend {
      asked = 0;
      override async transfer(): Promise<never> {
        this.asked++;
        throw new Error('no answer');
      }
    }
    const store = new SilentStore(now, 0);
    const backend = fromPromises(store, now, 50);
    const locks = serviceOn(backend);
    const parcel = { ...(await detached(await open(), 'hurried')), key: 'hurried' };
    await expect(locks.adopt(parcel)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(store.asked).toBe(1);
    backend.onReachable!();
    expect(store.asked).toBe(2);
  });
});

describe('a parcel', () => {
  it('that is malformed, forged, or made of the owner value of a process is refused [G823]', async () => {
    const locks = await open();
    const lock = await locks.acquire('forged');
    const parcel: LockParcel = {
      v: 1,
      key: 'forged',
      owner: `detached/host/1/${randomUUID()}`,
      fencingToken: lock.fencingToken,
      ttlMs: 60_000,
    };
    const wrong: [unknown, string][] = [
      [undefined, 'it is undefined'],
      [null, 'it is null'],
      [JSON.stringify(parcel), 'it is a string'],
      [[parcel], 'its v is not 1'],
      [{ ...parcel, v: 2 }, 'its v is not 1'],
      [{ ...parcel, key: 7 }, 'its key is not a string'],
      [{ ...parcel, owner: lock.owner }, 'its owner does not belong to a detached lock'],
      [{ ...parcel, owner: `${parcel.owner}@` }, 'its owner does not belong to a detached lock'],
      [
        { ...parcel, owner: `detached/${'h'.repeat(65)}/1/${randomUUID()}` },
        'its owner does not belong to a detached lock',
      ],
      [
        { ...parcel, owner: `detached/host/${'1'.repeat(11)}/${randomUUID()}` },
        'its owner does not belong to a detached lock',
      ],
      [{ ...parcel, owner: { toString: () => parcel.owner } }, 'its owner does not belong to a detached lock'],
      [{ ...parcel, fencingToken: -1 }, 'its fencingToken is not a fencing token'],
      [{ ...parcel, ttlMs: 1e12 }, 'its ttlMs must be 20 to 86 400 000'],
    ];
    for (const [given, message] of wrong) {
      for (const call of [
        () => locks.adopt(given as LockParcel),
        () => locks.withAdopted(given as LockParcel, () => {}),
        () => locks.extend(given as LockParcel, HOUR),
        () => locks.release(given as LockParcel),
      ])
        await expect(call()).rejects.toMatchObject(REFUSED(message));
    }
    await expect(locks.adopt({ ...parcel, key: '' })).rejects.toMatchObject({ code: 'LOCK_KEY' });
    await expect(locks.withAdopted(parcel, undefined as never)).rejects.toMatchObject(REFUSED('needs a function'));
    // In the correct form, with a guessed owner.
    await expect(locks.adopt(parcel)).rejects.toMatchObject(LOST('stolen'));
    await expect(locks.extend(parcel, HOUR)).rejects.toMatchObject(LOST('stolen'));
    expect(await locks.release(parcel)).toBe(false);
    expect(lock.isHeld).toBe(true);
    expect(await ownerOf('forged')).toBe(lock.owner);
    expect(await lock.release()).toBe(true);
  });

  it('is shown by its digest alone: in events, errors, logs, inspect and list [G826]', async () => {
    const [locks, others] = [await open(), await open()];
    const shown: unknown[] = [];
    const show = (each: unknown) => shown.push(each, inspect(each, { depth: 9, showHidden: true }), String(each));
    const messages = (message: unknown) => show(message);
    for (const channel of ['nest-redis-lock:event', 'tracing:nest-redis-lock:acquire:error']) {
      subscribe(channel, messages);
      onTestFinished(() => void unsubscribe(channel, messages));
    }
    const logger = new Logger();
    logger.error = logger.warn = show;
    const events: LockEvent[] = [];
    for (const service of [locks, others]) {
      service.events$.subscribe((event) => (events.push(event), show(event)));
      logProblems(service, logger);
    }
    const parcel = await detached(locks, 'secret');
    const digest = digestOf(parcel.owner);
    const info = await others.inspect('secret');
    expect(info).toMatchObject({ digest, holder: { owner: digest, pid: process.pid, detached: true } });
    show(info);
    show(await others.list({ match: 'secret' }));
    const contended = await fails(others.acquire('secret', { waitMs: 10 }));
    expect(contended).toMatchObject({ holder: { owner: digest, detached: true } });
    expect(String(contended)).toContain(`held by the parcel ${digest}, detached by pid ${process.pid} on`);
    show(contended);
    const adopted = await others.adopt(parcel);
    show(adopted);
    const failures = [locks.adopt(parcel), locks.extend(parcel, HOUR), locks.adopt({ ...parcel, v: 2 as 1 })].map(
      fails,
    );
    for (const failure of await Promise.all(failures)) show(failure);
    await adopted.release();
    show(await fails(locks.adopt(parcel)));
    const again = await detached(locks, 'secret');
    expect(await others.forceRelease('secret', { owner: digestOf(again.owner) })).toBe(true);
    show(await fails(others.extend(again, HOUR)));
    await until(() => events.filter(({ type }) => type === 'detached').length === 2, { what: 'the events' });
    expect(events).toContainEqual(
      expect.objectContaining({ type: 'detached', key: 'secret', ttlMs: HOUR.ttlMs, digest }),
    );
    expect(events).toContainEqual(
      expect.objectContaining({ type: 'acquired', grant: 'adopted', waitedMs: expect.any(Number) as number }),
    );
    const texts = shown.map((each) => (typeof each === 'string' ? each : JSON.stringify(each))).join('\n');
    for (const { owner } of [parcel, again]) expect(texts).not.toContain(owner.split('/').at(-1));
    expect(texts).toContain(digest);
  });
});
