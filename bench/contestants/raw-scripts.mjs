import { connectAll } from './clients.mjs';
import { library } from './library.mjs';
import { majority } from './raw-quorum.mjs';

const PREFIX = 'lock';

/**
 * The raw client, or the raw quorum, with the scripts of this library in the place of `SET` and its delete, and nothing
 * else: no lease, nothing that is extended, no time limit, nobody who waits. What the library takes beyond it is its code.
 */
export async function open({ ports, ttlMs }) {
  const { ACQUIRE, VOTE, RELEASE } = await library('stores/redis/scripts/lua.js');
  const clients = await connectAll(ports);
  const acquire = ports.length > 1 ? VOTE : ACQUIRE;
  for (const { source } of [acquire, RELEASE])
    await Promise.all(clients.map((client) => client.script('LOAD', source)));
  let sequence = 0;

  const take = (client, lock, owner) =>
    ports.length > 1
      ? client.evalsha(VOTE.sha, 3, lock, `${lock}:fence`, `${PREFIX}:admission`, owner, ttlMs, '')
      : client.evalsha(ACQUIRE.sha, 2, lock, `${lock}:fence`, owner, ttlMs);

  return {
    async acquire(key) {
      const lock = `${PREFIX}:{${key}}`;
      const owner = `bench/${process.pid}/abcdefghijkl/${(sequence++).toString(36)}`; // as long as ours
      const isToken = (reply) => Number(reply) > 0;
      if (clients.length > 1) await majority(clients, (client) => take(client, lock, owner), isToken);
      else if (!isToken(await take(clients[0], lock, owner))) throw new Error(`${key} is taken`);
      return { lock, owner };
    },
    release({ lock, owner }) {
      const give = (client) => client.evalsha(RELEASE.sha, 3, lock, `${lock}:fence`, `${lock}:queue`, owner);
      return clients.length > 1 ? majority(clients, give, () => true) : give(clients[0]);
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}
