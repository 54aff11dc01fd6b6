import { once } from 'node:events';
import { connect, createServer } from 'node:net';

/**
 * A longer way to a server: a proxy, with `port`. Set `roundTripMs` to the time of a request and its reply together.
 */
export async function farAway(targetPort) {
  const way = { port: 0, roundTripMs: 0 };
  const listener = createServer((client) => {
    const server = connect(targetPort, '127.0.0.1');
    for (const [from, to] of [
      [client, server],
      [server, client],
    ]) {
      from.setNoDelay();
      from.on('data', (bytes) => setTimeout(() => to.write(bytes), way.roundTripMs / 2));
      from.on('error', () => {});
      from.on('close', () => to.destroy());
    }
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  way.port = listener.address().port;
  return way;
}
