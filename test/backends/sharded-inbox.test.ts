import { performance } from 'node:perf_hooks';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { clusterSlot } from '../../lib/stores/redis/client/cluster-slot.js';
import { CommandFault, type RedisClient, type ShardedListener } from '../../lib/stores/redis/client/redis-client.js';
import { LockKeys } from '../../lib/stores/redis/node/lock-keys.js';
import { ShardedInbox } from '../../lib/stores/redis/node/sharded-inbox.js';
import { until } from '../support/until.js';

const KEYS = new LockKeys('lock', 'per-slot');
const [KEY, SAME_SLOT, OTHER_SLOT] = ['key', besideOf('key'), 'other'];
const channelOf = (key: string) => KEYS.channelOf(clusterSlot(`lock:{${key}}`), KEYS.inbox('me'));

/** Another key whose lock is in the same slot. */
function besideOf(key: string): string {
  for (let index = 0; ; index++) {
    if (clusterSlot(`lock:{beside ${index}}`) === clusterSlot(`lock:{${key}}`)) return `beside ${index}`;
  }
}

/** Lets everything run that waits for no timer. */
const settled = () => vi.advanceTimersByTimeAsync(0);

/** An inbox for a Cluster of two masters, which note in a log what they are asked, and answer as the test says. */
function setUp() {
  const log: string[] = [];
  const heard: string[] = [];
  const connections: ShardedListener[] = [];
  /** By the master, and the command. */
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
      subscribeSharded: (_name: string, listener: ShardedListener) => {
        log.push(`${name} connects`);
        connections.push(listener);
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
    connections.at(at)!.opened();
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

  it('connects to a master when a key is first waited for there, and has one channel for each slot', async () => {
    const { inbox, log, heard, opened } = setUp();
    await settled();
    expect([log, inbox.isOpen(KEY), inbox.signOf(KEY)]).toEqual([[], false, 'd']);
    for (const key of [KEY, SAME_SLOT, KEY, OTHER_SLOT]) inbox.open(key);
    await opened();
    expect(log).toEqual([
      'a connects',
      `a checks ${tag(KEY)}`,
      `a subscribes ${tag(KEY)}`,
      `a subscribes ${tag(OTHER_SLOT)}`,
    ]);
    expect([KEY, SAME_SLOT, OTHER_SLOT].map((key) => [inbox.isOpen(key), inbox.signOf(key)])).toEqual(
      [1, 2, 3].map(() => [true, 'h']),
    );
    expect(heard).toEqual([KEY, SAME_SLOT, OTHER_SLOT].map((key) => `listens for ${key}`));
  });

  it('does not listen for a key whose slot has moved, until it is opened at the new master', async () => {
    const { inbox, log, cluster, opened } = setUp();
    inbox.open(KEY);
    await opened();
    cluster.master = 'b';
    expect([inbox.isOpen(KEY), inbox.signOf(KEY)]).toEqual([false, 'd']);
    inbox.open(KEY);
    await opened();
    expect(inbox.isOpen(KEY)).toBe(true);
    expect(log.slice(3)).toEqual(['b connects', `b checks ${tag(KEY)}`, `b subscribes ${tag(KEY)}`]);
    cluster.master = 'a'; // where the server has ended the subscription meanwhile
    expect(inbox.isOpen(KEY)).toBe(false);
  });

  it.each(['MOVED 1 127.0.0.1:7000', 'CLUSTERDOWN Hash slot not served', 'LOADING Redis is loading'])(
    'leaves a channel that was refused for a while to the next attempt (%s)',
    async (message) => {
      const { inbox, heard, refusals, opened } = setUp();
      for (const command of ['ssubscribe', 'spublish']) {
        refusals.set(`a ${command}`, new CommandFault(message, 'refused'));
      }
      inbox.open(KEY);
      await opened();
      expect([inbox.isOpen(KEY), heard]).toEqual([false, []]);
      refusals.clear();
      inbox.open(KEY);
      await settled();
      expect([inbox.isOpen(KEY), heard]).toEqual([true, [`listens for ${KEY}`]]);
    },
  );

  it.each([
    ['ssubscribe', "NOPERM this user has no permissions to run the 'ssubscribe' command"],
    ['spublish', "NOPERM this user has no permissions to run the 'spublish' command"],
    ['ssubscribe', 'ERR unknown command `ssubscribe`'],
  ])('says that it is of no use when %s is refused for good (%s)', async (command, message) => {
    const { inbox, heard, refusals, opened } = setUp();
    refusals.set(`a ${command}`, new CommandFault(message, 'refused'));
    inbox.open(KEY);
    await opened();
    expect(heard).toContain('refused');
  });

  it('is of use although a command got no answer', async () => {
    const { inbox, heard, refusals, opened } = setUp();
    for (const command of ['ssubscribe', 'spublish']) {
      refusals.set(`a ${command}`, new CommandFault('Connection is closed.', 'disconnected'));
    }
    inbox.open(KEY);
    await opened();
    expect(heard).toEqual([]);
  });

  it('forgets a connection that breaks, and has all who wait ask again', async () => {
    const { inbox, log, heard, connections, opened } = setUp();
    inbox.open(KEY);
    await opened();
    await vi.advanceTimersByTimeAsync(1_000);
    connections[0]!.closed();
    expect([inbox.isOpen(KEY), heard]).toEqual([false, [`listens for ${KEY}`, 'change']]);
    inbox.open(KEY);
    await opened();
    expect(inbox.isOpen(KEY)).toBe(true);
    expect(log.filter((line) => line === 'a connects')).toHaveLength(2);
  });

  it('forgets a connection on which a subscription is not answered, and has all who wait ask again', async () => {
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

  it('connects to a master that refuses connections at most twice a second, however often it is asked', async () => {
    const { inbox, log, heard, connections } = setUp();
    for (let at = 0; at < 2_000; at += 10) {
      inbox.open(KEY);
      connections.at(-1)!.closed();
      await vi.advanceTimersByTimeAsync(10);
    }
    expect(log.filter((line) => line === 'a connects')).toHaveLength(4);
    expect(heard).toEqual([]); // nobody has listened, so nobody has missed a message
  });

  describe('that is checked', () => {
    it('stays as it is when the message to itself arrives', async () => {
      const { inbox, log, heard, connections, opened } = setUp();
      inbox.open(KEY);
      await opened();
      await vi.advanceTimersByTimeAsync(1_000);
      log.length = heard.length = 0;
      for (let time = 0; time < 5; time++) inbox.check(KEY);
      connections[0]!.message('?', channelOf(KEY));
      await vi.advanceTimersByTimeAsync(2_000);
      expect([log, heard, inbox.isOpen(KEY)]).toEqual([[`a checks ${tag(KEY)}`], [], true]);
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
      vi.useRealTimers(); // it waits for the message by a timer that cannot be faked
      await until(() => !inbox.isOpen(KEY), { what: 'it has noticed' });
      expect([inbox.isOpen(KEY), heard.at(-1), log.at(-1)]).toEqual([false, 'change', 'a closes']);
    });

    it('is checked by a channel that is open, if there is no reason to doubt one in particular', async () => {
      const { inbox, log, cluster, opened } = setUp();
      cluster.hangs = true;
      inbox.open(KEY);
      await opened();
      cluster.hangs = false;
      inbox.open(OTHER_SLOT);
      await vi.advanceTimersByTimeAsync(1_000);
      inbox.check();
      expect(log.at(-1)).toBe(`a checks ${tag(OTHER_SLOT)}`);
    });

    it('is of no use when it may not publish any more', async () => {
      const { inbox, heard, refusals, opened } = setUp();
      inbox.open(KEY);
      await opened();
      await vi.advanceTimersByTimeAsync(1_000);
      refusals.set('a spublish', new CommandFault('NOPERM no permissions', 'refused'));
      inbox.check(KEY);
      await settled();
      expect(heard.at(-1)).toBe('refused');
    });

    it('forgets the channel alone when its slot has moved', async () => {
      const { inbox, log, refusals, opened } = setUp();
      for (const key of [KEY, OTHER_SLOT]) inbox.open(key);
      await opened();
      await vi.advanceTimersByTimeAsync(1_000);
      refusals.set('a spublish', new CommandFault('MOVED 1 127.0.0.1:7000', 'refused'));
      inbox.check(KEY);
      await vi.advanceTimersByTimeAsync(2_000);
      expect([inbox.isOpen(KEY), inbox.isOpen(OTHER_SLOT), log.at(-1)]).toEqual([false, true, `a checks ${tag(KEY)}`]);
    });
  });

  it('leaves the channels that nobody has waited on for a minute, and the masters where it has none, and no timer [G299]', async () => {
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

  it('says nothing of a channel that is open only after it was closed', async () => {
    const { inbox, heard, connections } = setUp();
    inbox.open(KEY);
    connections[0]!.opened();
    inbox.close();
    await settled();
    expect([heard, inbox.isOpen(KEY)]).toEqual([[], false]);
  });

  it('closes all its connections, and says nothing more', async () => {
    const { inbox, log, heard, cluster, opened } = setUp();
    inbox.open(KEY);
    await opened();
    cluster.master = 'b';
    inbox.open(KEY);
    heard.length = 0;
    inbox.close();
    await vi.advanceTimersByTimeAsync(100_000);
    expect(log.slice(-2)).toEqual(['a closes', 'b closes']);
    expect([heard, inbox.isOpen(KEY), vi.getTimerCount()]).toEqual([[], false, 0]);
  });
});
