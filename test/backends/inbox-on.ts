import type { Cluster, Redis } from 'ioredis';
import { onTestFinished } from 'vitest';
import { PlainInbox } from '../../lib/stores/redis/node/inbox.js';
import { portOf } from '../support/port-of.js';
import { until } from '../support/until.js';

/** An inbox on a client of a test, and its reports. */
export function inboxOn<Client extends Redis | Cluster>(source: Client) {
  source.on('error', () => {}); // like the application
  const heard: string[] = [];
  const changes: boolean[] = [];
  const inbox: PlainInbox = new PlainInbox('inbox:me', portOf(source), 'inbox', {
    onMessage: (text) => heard.push(text),
    onListening: () => changes.push(inbox.isOpen()),
    onRefused: () => {},
  });
  onTestFinished(() => {
    inbox.close();
    source.disconnect();
  });
  const isOpen = () => until(() => inbox.isOpen(), { what: 'it listens' });
  return { inbox, source, heard, changes, isOpen };
}
