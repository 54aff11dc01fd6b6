import { Cluster, Redis } from 'ioredis';

/** An ioredis client with ioredis' own defaults, connected. */
export function connect(port, options) {
  return untilReady(new Redis({ host: '127.0.0.1', port, ...options }));
}

/** @param isCluster whether these are nodes of one Cluster, which has a single client */
export function connectAll(ports, { isCluster = false, options } = {}) {
  const clients = isCluster
    ? [untilReady(new Cluster(ports.map((port) => ({ host: '127.0.0.1', port }))))]
    : ports.map((port) => connect(port, options));
  return Promise.all(clients);
}

async function untilReady(client) {
  client.on('error', () => {}); // each command reports its own failure
  await new Promise((resolve) => client.once('ready', resolve));
  return client;
}

/** For peers that limit an acquire call by a number of attempts: enough attempts to succeed. */
export const ENOUGH_ATTEMPTS = 1_000_000;
