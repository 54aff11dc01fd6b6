import { Redis } from 'ioredis';
import { beforeEach, describe, expect, it } from 'vitest';
import { untilSubscribers } from '../support/queue.js';
import { proxyTo, serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';
import { inboxOn } from './inbox-on.js';

const server = await serverOfFile();
beforeEach(() => untilSubscribers(server, 0));

function inboxOf(options: object = {}, serverPort = server.port) {
  return inboxOn(new Redis({ host: '127.0.0.1', port: serverPort, ...options }));
}

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
    expect(await server.command('PUBLISH', 'inbox:me', 'again')).toBe(1);
    await until(() => heard.length > 0, { what: 'it hears' });
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
