import type { Cluster, Redis } from 'ioredis';
import { onTestFinished } from 'vitest';
import { PlainInbox } from '../../lib/stores/redis/node/inbox.js';
import { portOf } from '../support/port-of.js';
import { until } from '../support/until.js';

/** An inbox on a client of a test, and its reports. */
export function inboxOn<Client extends Redis | Cluster>(source: Client) {
  source.on('error', () => {}); // like the application
  const port = portOf(source);
  const heard: string[] = [];
  const changes: boolean[] = [];
  const forbidden: string[] = [];
  const inbox: PlainInbox = new PlainInbox('inbox:me', port, 'inbox', {
    onMessage: (text) => heard.push(text),
    onListening: () => changes.push(inbox.isOpen()),
    onRefused: (command) => forbidden.push(command),
  });
  onTestFinished(() => {
    inbox.close();
    source.disconnect();
  });
  const isOpen = () => until(() => inbox.isOpen(), { what: 'it listens' });
  return { inbox, source, port, heard, changes, forbidden, isOpen };
}
