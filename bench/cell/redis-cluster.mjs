import { setTimeout as sleep } from 'node:timers/promises';
import { startRedisServer } from './redis-servers.mjs';

const SLOTS = 16_384;

/** A Redis Cluster of this cell: masters without replicas, each with an equal share of the slots. */
export async function startRedisCluster(masters, scratch) {
  const args = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000', '--dir', scratch];
  const starting = Array.from({ length: masters }, () =>
    startRedisServer((port) => [...args, '--cluster-config-file', `nodes-${port}.conf`]),
  );
  const nodes = await Promise.all(starting);
  const first = (index) => Math.floor((index * SLOTS) / masters);
  await Promise.all(
    nodes.map(async ({ control }, index) => {
      // Without distinct epochs the nodes would spend their first seconds settling which of them is newer.
      await control.cluster('SET-CONFIG-EPOCH', index + 1);
      await control.call('CLUSTER', 'ADDSLOTSRANGE', first(index), first(index + 1) - 1);
    }),
  );
  // Every node meets every other one: gossip alone would take seconds to spread the news.
  for (const { control } of nodes) {
    for (const { port } of nodes) if (port !== control.options.port) await control.cluster('MEET', '127.0.0.1', port);
  }
  for (const { control } of nodes) while (!(await isComplete(control, masters))) await sleep(20);
  return nodes;
}

async function isComplete(control, masters) {
  const info = await control.cluster('INFO');
  const isWhole = info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${masters}\r`);
  return isWhole && !(await control.cluster('NODES')).includes('handshake');
}

/**
 * The number of messages of the cluster bus that a node has sent for publications so far, including sharded ones: one
 * for each node that gets it.
 */
export async function publicationsSent(control) {
  const info = await control.cluster('INFO');
  const sent = info.matchAll(/^cluster_stats_messages_publish(?:shard)?_sent:(\d+)/gm);
  return [...sent].reduce((total, [, count]) => total + Number(count), 0);
}
