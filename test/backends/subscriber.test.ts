import { expect, it } from 'vitest';
import { CommandFault } from '../../lib/stores/redis/client/redis-client.js';
import { Subscriber, type ConnectionListener } from '../../lib/stores/redis/client/subscriber.js';

it.each([
  ["NOPERM this user has no permissions to run the 'subscribe' command", 'refused'],
  ["ERR unknown command 'subscribe', with args beginning with: 'inbox' ", 'refused'], // renamed, or of a service that has none
  ['ERR max number of clients reached', 'closed'],
] as const)('a subscriber that the server answers with %s tells that it is %s', (message, told) => {
  let connection!: ConnectionListener;
  const called: string[] = [];
  const listener = {
    message: () => {},
    opened: () => {},
    closed: () => called.push('closed'),
    refused: () => called.push('refused'),
  };
  const subscriber = new Subscriber((of) => {
    connection = of;
    return { close: () => {} };
  }, listener);
  connection.over(new CommandFault(message, 'refused'));
  subscriber.close();
  expect(called).toEqual([told]);
});
