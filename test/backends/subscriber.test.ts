import { expect, it } from 'vitest';
import { CommandFault } from '../../lib/stores/redis/client/redis-client.js';
import { Subscriber, type Report } from '../../lib/stores/redis/client/subscriber.js';

it.each([
  ["NOPERM this user has no permissions to run the 'subscribe' command", 'refused'],
  ["ERR unknown command 'subscribe', with args beginning with: 'inbox' ", 'refused'], // renamed, or of a service that has none
  ['ERR max number of clients reached', 'closed'],
] as const)('a subscriber that the server answers with %s reports that it is %s', (message, told) => {
  let report!: Report;
  const called: string[] = [];
  const connect = (of: Report) => {
    report = of;
    return { close: () => {} };
  };
  const subscriber = new Subscriber(connect, (change) => called.push(typeof change === 'string' ? change : 'refused'));
  report(new CommandFault(message, 'refused'));
  subscriber.close();
  expect(called).toEqual([told]);
});
