import { randomUUID } from 'node:crypto';
import { connectAll } from './clients.mjs';
import { COMPARE_AND_DELETE } from './compare-and-delete.mjs';

/** SET NX PX on all nodes at once, settled at the majority's OK; compare-and-delete on all, settled at a majority too. */
export async function open({ ports, ttlMs }) {
  const clients = await connectAll(ports);
  const quorum = Math.floor(ports.length / 2) + 1;
  const [sha] = await Promise.all(clients.map((client) => client.script('LOAD', COMPARE_AND_DELETE)));

  function majority(send, isVote) {
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

  return {
    async acquire(key) {
      const owner = randomUUID();
      await majority(
        (client) => client.set(key, owner, 'PX', ttlMs, 'NX'),
        (reply) => reply === 'OK',
      );
      return { key, owner };
    },
    release: ({ key, owner }) =>
      majority(
        (client) => client.evalsha(sha, 1, key, owner),
        () => true,
      ),
    close: () => clients.forEach((client) => client.disconnect()),
  };
}
