import { Redis } from 'ioredis';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { CommandFault } from '../../lib/stores/redis/client/redis-client.js';
import { untilSubscribers } from '../support/queue.js';
import { proxyTo, serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';
import { inboxOn } from './inbox-on.js';

const server = await serverOfFile();
beforeEach(() => untilSubscribers(server, 0));

function inboxOf(options: object = {}, serverPort = server.port) {
  return inboxOn(new Redis({ host: '127.0.0.1', port: serverPort, ...options }));
}

const publish = (text: string, channel = 'inbox:me') => server.command('PUBLISH', channel, text);

describe('an inbox', () => {
  it('is reopened for the next waiting call after its client gave up', async () => {
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

  describe('that is checked', () => {
    /** For this long after a message, the inbox is not doubted. */
    const quiet = () => new Promise<void>((resolve) => setTimeout(resolve, 600));
    beforeEach(quiet);

    /** An inbox whose message to itself is refused when the test says so. */
    async function checked() {
      const made = inboxOf();
      made.inbox.open();
      await made.isOpen();
      let reject!: (fault: CommandFault) => void;
      vi.spyOn(made.port.messages, 'publish').mockReturnValue(new Promise((_, rejects) => (reject = rejects)));
      made.inbox.check();
      const refuse = async () => {
        reject(new CommandFault('NOPERM this user has no permissions', 'refused'));
        await new Promise((resolve) => setTimeout(resolve, 10));
      };
      return { ...made, refuse };
    }

    it('reports no refusal that comes after it was closed', async () => {
      const { inbox, forbidden, refuse } = await checked();
      inbox.close();
      await refuse();
      expect(forbidden).toEqual([]);
    });

    it('keeps the connection that was made meanwhile when the message that it sent before is refused', async () => {
      const { inbox, changes, forbidden, refuse } = await checked();
      await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await until(() => changes.length === 3, { what: 'it listens again' });
      await refuse();
      expect([inbox.isOpen(), forbidden]).toEqual([true, []]);
    });

    it('is checked again after a check that the client never settled', async () => {
      const proxy = await proxyTo(server);
      const { inbox, source, isOpen } = inboxOf({ autoResendUnfulfilledCommands: false }, proxy.port);
      await source.ping();
      inbox.open();
      await isOpen();
      await server.resetCalls();
      proxy.hold();
      inbox.check();
      await new Promise((resolve) => setTimeout(resolve, 20)); // the message is in the proxy
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
