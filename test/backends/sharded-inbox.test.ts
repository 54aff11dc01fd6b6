import { performance } from 'node:perf_hooks';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CommandFault, type RedisClient } from '../../lib/stores/redis/client/redis-client.js';
import { LockKeys } from '../../lib/stores/redis/node/lock-keys.js';
import { ShardedInbox } from '../../lib/stores/redis/node/sharded-inbox.js';
import { clusterSlot } from '../support/cluster-slots.js';
import { until } from '../support/until.js';

const KEYS = new LockKeys('lock', 'per-slot');
const [KEY, OTHER_SLOT] = ['key', 'other'];
const channelOf = (key: string) => KEYS.channelOf(clusterSlot(`lock:{${key}}`), KEYS.inbox('me'));

/** Runs everything that waits for no timer. */
const settled = () => vi.advanceTimersByTimeAsync(0);

/** An inbox for a Cluster of two masters, which log their requests, and answer as the test says. */
function setUp() {
  const log: string[] = [];
  const heard: string[] = [];
  const connections: ((change: 'opened' | 'closed') => void)[] = [];
  /** By master and command. */
  const refusals = new Map<string, CommandFault>();
  const cluster = { master: 'a', listeners: 1, hangs: false };
  const answer = <T>(what: string, value: T): Promise<T> => {
    const fault = refusals.get(what);
    return fault ? Promise.reject(fault) : Promise.resolve(value);
  };
  const masters = ['a', 'b'].map((name) => ({
    name,
    messages: {
      publish: (channel: string) => {
        log.push(`${name} checks ${channel.slice(channel.indexOf('{'))}`);
        return answer(`${name} spublish`, cluster.listeners);
      },
      subscribeSharded: (_name: string, _onMessage: unknown, onChange: (change: 'opened' | 'closed') => void) => {
        log.push(`${name} connects`);
        connections.push(onChange);
        return {
          subscribe: async (channel: string) => {
            log.push(`${name} subscribes ${channel.slice(channel.indexOf('{'))}`);
            await (cluster.hangs ? new Promise<never>(() => {}) : answer(`${name} ssubscribe`, undefined));
          },
          unsubscribe: (channel: string) =>
            void log.push(`${name} unsubscribes ${channel.slice(channel.indexOf('{'))}`),
          close: () => void log.push(`${name} closes`),
        };
      },
    },
  }));
  const client = {
    topology: { routeOf: (key: string) => [clusterSlot(key), cluster.master], masters: () => masters },
  } as unknown as RedisClient;
  const listener = {
    onMessage: (text: string) => heard.push(text),
    onListening: (key?: string) => heard.push(key === undefined ? 'change' : `listens for ${key}`),
    onRefused: () => heard.push('refused'),
  };
  const inbox = new ShardedInbox(KEYS.inbox('me'), client, 'inbox', listener, KEYS);
  const opened = (at = -1) => {
    connections.at(at)!('opened');
    return settled();
  };
  return { inbox, log, heard, connections, refusals, cluster, opened };
}

const tag = (key: string) => channelOf(key).slice(channelOf(key).indexOf('{'));

describe('a sharded inbox', () => {
  beforeEach(() => {
    vi.useFakeTimers();
    vi.spyOn(performance, 'now').mockImplementation(() => Date.now());
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  it('forgets a connection on which a subscription is not answered, and makes all waiting calls ask again', async () => {
    const { inbox, log, heard, cluster, opened } = setUp();
    inbox.open(KEY);
    await opened();
    cluster.hangs = true;
    inbox.open(OTHER_SLOT);
    await vi.advanceTimersByTimeAsync(4_000);
    expect([inbox.isOpen(KEY), log.at(-1)]).toEqual([true, `a subscribes ${tag(OTHER_SLOT)}`]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect([inbox.isOpen(KEY), heard.at(-1), log.at(-1)]).toEqual([false, 'change', 'a closes']);
    cluster.hangs = false;
    inbox.open(OTHER_SLOT);
    await opened();
    expect([inbox.isOpen(OTHER_SLOT), heard.at(-1)]).toEqual([true, `listens for ${OTHER_SLOT}`]);
  });

  it('reconnects to a master at most once in half a second, however often its connection is lost', async () => {
    const { inbox, log, connections } = setUp();
    const connects = () => log.filter((what) => what === 'a connects').length;
    inbox.open(KEY);
    connections[0]!('closed');
    inbox.open(KEY);
    expect(connects()).toBe(1);
    await vi.advanceTimersByTimeAsync(500);
    inbox.open(KEY);
    expect(connects()).toBe(2);
  });

  describe('that is checked', () => {
    it.each([
      ['its slot has moved to another master', 'b', { closes: [] }],
      ['its connection was lost, and made again', 'a', { closes: ['a closes'] }],
    ])('keeps the connections that it has when %s meanwhile', async (_what, master, { closes }) => {
      const { inbox, log, connections, cluster, opened } = setUp();
      inbox.open(KEY);
      await opened();
      await vi.advanceTimersByTimeAsync(1_000);
      inbox.check(KEY);
      await settled();
      if (master === 'a') connections[0]!('closed');
      cluster.master = master;
      inbox.open(KEY);
      await opened();
      await vi.advanceTimersByTimeAsync(3_000);
      await until(() => inbox.isOpen(KEY), { what: 'it listens' });
      expect(log.filter((what) => what.endsWith('closes'))).toEqual(closes);
    });

    it.each([
      ['nothing arrives', 1],
      ['the server knows of no listener', 0],
    ])('forgets its connection when %s', async (_what, listeners) => {
      const { inbox, log, heard, cluster, opened } = setUp();
      inbox.open(KEY);
      await opened();
      await vi.advanceTimersByTimeAsync(1_000);
      cluster.listeners = listeners;
      inbox.check();
      vi.useRealTimers(); // it checks once more with a timer that cannot be faked
      await until(() => !inbox.isOpen(KEY), { what: 'it has noticed' });
      expect([inbox.isOpen(KEY), heard.at(-1), log.at(-1)]).toEqual([false, 'change', 'a closes']);
    });

    it('is unusable when it may no longer publish', async () => {
      const { inbox, heard, refusals, opened } = setUp();
      inbox.open(KEY);
      await opened();
      await vi.advanceTimersByTimeAsync(1_000);
      refusals.set('a spublish', new CommandFault('NOPERM no permissions', 'refused'));
      inbox.check(KEY);
      await settled();
      expect(heard.at(-1)).toBe('refused');
    });
  });

  it('leaves channels that nobody has waited on for a minute, then masters without channels, and no timer [G299]', async () => {
    const { inbox, log, heard, opened } = setUp();
    for (const key of [KEY, OTHER_SLOT]) inbox.open(key);
    await opened();
    log.length = heard.length = 0;
    for (let second = 0; second < 100; second++) {
      inbox.signOf(KEY);
      await vi.advanceTimersByTimeAsync(1_000);
    }
    expect(log).toEqual([`a unsubscribes ${tag(OTHER_SLOT)}`]);
    expect([KEY, OTHER_SLOT].map((key) => inbox.isOpen(key))).toEqual([true, false]);
    await vi.advanceTimersByTimeAsync(100_000);
    expect(log.slice(1)).toEqual([`a unsubscribes ${tag(KEY)}`, 'a closes']);
    expect([heard, vi.getTimerCount()]).toEqual([[], 0]);
    inbox.open(KEY);
    await opened();
    expect(inbox.isOpen(KEY)).toBe(true);
  });
});
