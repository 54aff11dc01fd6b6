import { randomUUID } from 'node:crypto';
import { connectAll } from './clients.mjs';
import { COMPARE_AND_DELETE } from './compare-and-delete.mjs';

/**
 * SET NX PX on all nodes at once, settled at the majority's OK; compare-and-delete on all of them, also settled at a
 * majority.
 */
export async function open({ ports, ttlMs }) {
  const clients = await connectAll(ports);
  const [sha] = await Promise.all(clients.map((client) => client.script('LOAD', COMPARE_AND_DELETE)));

  return {
    async acquire(key) {
      const owner = randomUUID();
      await majority(
        clients,
        (client) => client.set(key, owner, 'PX', ttlMs, 'NX'),
        (reply) => reply === 'OK',
      );
      return { key, owner };
    },
    release: ({ key, owner }) =>
      majority(
        clients,
        (client) => client.evalsha(sha, 1, key, owner),
        () => true,
      ),
    close: () => clients.forEach((client) => client.disconnect()),
  };
}

/** Asks all nodes at once, and settles as soon as a majority has voted. */
export function majority(clients, send, isVote) {
  const quorum = Math.floor(clients.length / 2) + 1;
  return new Promise((resolve, reject) => {
    let votes = 0;
    let refusals = 0;
    const refuse = () => {
      if (++refusals > clients.length - quorum) reject(new Error('no majority'));
    };
    for (const client of clients) {
      send(client).then((reply) => {
        if (!isVote(reply)) refuse();
        else if (++votes === quorum) resolve();
      }, refuse);
    }
  });
}
