import { Redis } from 'ioredis';

/** An ioredis client with ioredis' own defaults, connected. */
export async function connect(port) {
  const client = new Redis({ host: '127.0.0.1', port });
  client.on('error', () => {}); // a command that fails says so itself
  await new Promise((resolve) => client.once('ready', resolve));
  return client;
}

export function connectAll(ports) {
  return Promise.all(ports.map((port) => connect(port)));
}

/** For acquire calls that a peer limits by a number of attempts: enough to finish. */
export const ENOUGH_ATTEMPTS = 1_000_000;
