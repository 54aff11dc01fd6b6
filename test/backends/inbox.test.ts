import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { HEARD, UNHEARD } from '../../lib/stores/redis/scripts/hand-off.js';
import { subscribers, untilSubscribers } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { inboxOn } from './inbox-on.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
beforeEach(() => untilSubscribers(server, 0));
afterAll(() => server.stop());

function inboxOf(options: object = {}, serverPort = server.port) {
  return inboxOn(new Redis({ host: '127.0.0.1', port: serverPort, ...options }));
}

const publish = (text: string, channel = 'inbox:me') => server.command('PUBLISH', channel, text);

describe('an inbox', () => {
  it('connects only when it is opened, once, however often that is', async () => {
    const { inbox, source, changes, isOpen } = inboxOf();
    await source.ping();
    expect([inbox.isOpen(), await subscribers(server)]).toEqual([false, 0]);
    for (let time = 0; time < 5; time++) inbox.open();
    expect(inbox.isOpen()).toBe(false); // not before the server has answered
    await isOpen();
    inbox.open();
    await source.ping();
    expect(changes).toEqual([true]);
    expect(await subscribers(server)).toBe(1);
  });

  it('is counted on by others once it listens, but not in a Cluster, where it may do so at another node', async () => {
    const { inbox, port, isOpen } = inboxOf();
    expect(inbox.signOf()).toBe(UNHEARD);
    inbox.open();
    await isOpen();
    expect(inbox.signOf()).toBe(HEARD);
    Object.assign(port.topology, { isCluster: true });
    expect(inbox.signOf()).toBe(UNHEARD);
  });

  it('is opened anew by the next one who waits when its client gave up', async () => {
    const { inbox, heard, changes, isOpen } = inboxOf({ retryStrategy: () => null });
    inbox.open();
    await isOpen();
    await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await until(() => changes.length === 2, { what: 'it notices' });
    await until(
      () => {
        inbox.open();
        return inbox.isOpen();
      },
      { what: 'it listens again' },
    );
    expect(await publish('again')).toBe(1);
    await until(() => heard.length > 0, { what: 'it hears' });
  });

  it('leaves its connection behind when it is closed, and says nothing more', async () => {
    const { inbox, source, heard, changes, isOpen } = inboxOf();
    inbox.open();
    await isOpen();
    inbox.close();
    expect(inbox.isOpen()).toBe(false);
    await untilSubscribers(server, 0);
    await publish('too late');
    expect(await source.ping()).toBe('PONG');
    expect([heard, changes]).toEqual([[], [true]]);
  });

  it('that is closed before it was connected does not connect', async () => {
    const { inbox, source, changes } = inboxOf();
    inbox.open();
    inbox.close();
    await source.ping();
    await source.ping();
    expect([await subscribers(server), changes, inbox.isOpen()]).toEqual([0, [], false]);
  });

  describe('that is checked', () => {
    /** So long after a message it is not doubted. */
    const quiet = () => new Promise<void>((resolve) => setTimeout(resolve, 600));
    beforeEach(quiet); // nor so long after the start of the process

    it('stays as it is when messages arrive, and passes on nothing of the check', async () => {
      const { inbox, heard, changes, isOpen } = inboxOf();
      inbox.open();
      await isOpen();
      await server.resetCalls();
      for (let time = 0; time < 5; time++) inbox.check();
      await until(async () => (await server.calls()).publish === 1, { what: 'it has sent itself a message' });
      await publish('of another');
      await until(() => heard.length > 0, { what: 'it hears' });
      inbox.check(); // it has just heard something
      await quiet();
      expect((await server.calls()).publish).toBe(2);
      expect([heard, changes]).toEqual([['of another'], [true]]);
    });

    it('subscribes anew when the server knows of no subscription', async () => {
      const proxy = await TcpProxy.start(server.port);
      onTestFinished(() => proxy.stop());
      const { inbox, changes, isOpen } = inboxOf({}, proxy.port);
      inbox.open();
      await isOpen();
      proxy.hideCloses();
      await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
      inbox.check();
      await untilSubscribers(server, 1);
      await isOpen();
      expect(changes).toEqual([true, false, true]);
    });

    it('subscribes anew when the server publishes, but nothing arrives', async () => {
      const { inbox, port, changes, isOpen } = inboxOf();
      inbox.open();
      await isOpen();
      port.call = () => Promise.resolve(1); // to a connection that leads nowhere
      inbox.check();
      await until(() => changes.length >= 3, { what: 'it has subscribed anew' });
      expect(changes).toEqual([true, false, true]);
    });

    it('stays as it is while its server may not be asked to publish', async () => {
      const { inbox, source, port, changes, isOpen } = inboxOf();
      inbox.open();
      await isOpen();
      port.call = () => Promise.reject(new Error('NOPERM'));
      inbox.check();
      await source.ping();
      inbox.check();
      await quiet();
      expect([inbox.isOpen(), changes]).toEqual([true, [true]]);
    });

    it('is checked again after a check that the client never settled', async () => {
      const proxy = await TcpProxy.start(server.port);
      onTestFinished(() => proxy.stop());
      const { inbox, source, isOpen } = inboxOf({ autoResendUnfulfilledCommands: false }, proxy.port);
      await source.ping();
      inbox.open();
      await isOpen();
      await server.resetCalls();
      proxy.hold();
      inbox.check();
      await new Promise((resolve) => setTimeout(resolve, 20)); // it is in the proxy
      proxy.cut();
      proxy.release();
      await until(
        async () => {
          inbox.check();
          return (await server.calls()).publish! >= 1;
        },
        { what: 'it has sent itself another message' },
      );
    });
  });
});
