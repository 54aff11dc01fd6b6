import { setTimeout as sleep } from 'node:timers/promises';
import { openMany } from '../contestants/library.mjs';
import { connect } from '../contestants/clients.mjs';
import { publicationsSent } from '../cell/redis-cluster.mjs';
import { median, nowMs, quantile, sorted, sum } from '../cell/statistics.mjs';

/** The interval between hand-offs: a hundred a second. */
const EVERY_MS = 10;
/** How long each lock is held: by then its waiter has its place. */
const HOLD_MS = 60;
const KEYS_OF_A_NODE = 20;
const FULL = { handOffs: 1_000, warmUp: 300 };
const QUICK = { handOffs: 200, warmUp: 60 };
/** The bytes of a publication on the bus besides its channel and its message: Redis 7.0. */
const HEADER = 2_264;

/**
 * The cost of a hand-off in a Cluster: the bytes that its nodes send to each other, and how long the message takes to a
 * waiter whose subscription is on another node than the lock.
 */
export function clusterHandOffs({ title, masters }) {
  return {
    title,
    kind: 'cluster-hand-offs',
    groups: ['growth'],
    masters,
    once: true,

    async coordinate({ servers, workers: [worker], quick }) {
      const { handOffs, warmUp } = quick ? QUICK : FULL;
      const keys = await keysByNode(servers);
      await worker.run('openTwo');
      await worker.run('handOver', { keys: keys.flat(), handOffs: warmUp });
      const channels = await Promise.all(servers.map(({ control }) => control.call('PUBSUB', 'CHANNELS', 'lock:*')));
      // With subscriptions on each node for its own locks, all nodes are alike.
      const home = Math.max(
        0,
        channels.findIndex((own) => own.length > 0),
      );
      const published = await listen(servers[0]);
      const before = await sentBy(servers);
      // One after the other: a node that sends constantly is slower than one that has paused.
      const same = sorted(await worker.run('handOver', { keys: keys[home], handOffs }));
      const other = sorted(await worker.run('handOver', { keys: keys[(home + 1) % masters], handOffs }));
      const messages = ((await sentBy(servers)) - before) / (2 * handOffs);
      return {
        turns: 2 * handOffs,
        messages,
        bytes: published.length > 0 ? messages * (HEADER + median(published)) : 0,
        sameP50Ms: quantile(same, 0.5),
        sameP90Ms: quantile(same, 0.9),
        otherP50Ms: quantile(other, 0.5),
        otherP90Ms: quantile(other, 0.9),
        p90ToSame: quantile(other, 0.9) / quantile(same, 0.9),
      };
    },

    tasks: {
      async openTwo(client) {
        [client.holder, client.waiter] = await openMany(client.terms, 2);
      },

      /** @returns the time of each hand-off, from the call of release to the return of acquire */
      async handOver({ holder, waiter }, { keys, handOffs }) {
        const one = async (key) => {
          const lock = await holder.acquire(key);
          const waited = waiter.acquire(key).then(async (next) => {
            const acquiredAt = nowMs();
            await waiter.release(next);
            return acquiredAt;
          });
          await sleep(HOLD_MS);
          const releasedAt = nowMs();
          await holder.release(lock);
          return (await waited) - releasedAt;
        };
        const delays = [];
        for (let index = 0; index < handOffs; index++) {
          delays.push(one(keys[index % keys.length]));
          await sleep(EVERY_MS);
        }
        return Promise.all(delays);
      },
    },
  };
}

/** This many keys of each node. */
async function keysByNode(servers) {
  const { control } = servers[0];
  const found = servers.map(() => []);
  for (let index = 0; found.some((keys) => keys.length < KEYS_OF_A_NODE); index++) {
    const key = `handed-over:${index}`;
    const slot = await control.cluster('KEYSLOT', key);
    const keys = found[Math.floor((slot * servers.length) / 16_384)];
    if (keys.length < KEYS_OF_A_NODE) keys.push(key);
  }
  return found;
}

/**
 * @returns a function that returns the lengths of all publications to the whole Cluster from now on: channel and
 * message
 */
async function listen({ port }) {
  const lengths = [];
  const subscriber = await connect(port);
  subscriber.on('pmessage', (_, channel, message) => lengths.push(channel.length + message.length));
  await subscriber.psubscribe('*');
  return lengths;
}

async function sentBy(servers) {
  return sum(await Promise.all(servers.map(({ control }) => publicationsSent(control))));
}
