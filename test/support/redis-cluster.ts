import { RedisServer } from './redis-server.js';
import { until } from './until.js';

const SLOTS = 16_384;

/** A real Redis Cluster of masters, each with an equal part of the slots. */
export class RedisCluster {
  private constructor(readonly nodes: readonly RedisServer[]) {}

  /** Takes about two seconds: so long Redis keeps a new cluster from serving. */
  static async start(masters = 3): Promise<RedisCluster> {
    const started = await Promise.allSettled(Array.from({ length: masters }, () => startNode()));
    const cluster = new RedisCluster(started.flatMap((node) => (node.status === 'fulfilled' ? [node.value] : [])));
    try {
      for (const node of started) if (node.status === 'rejected') throw node.reason;
      await cluster.#form();
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.stop()));
  }

  async #form(): Promise<void> {
    await Promise.all(
      this.nodes.map(async (node, index) => {
        // Without distinct epochs the nodes would spend their first seconds settling which of them is newer.
        await node.command('CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
        await node.command('CLUSTER', 'ADDSLOTS', ...slotsOf(index, this.nodes.length));
      }),
    );
    // Every node meets every other one: gossip alone would take seconds to spread the news.
    for (const node of this.nodes) {
      for (const other of this.nodes) {
        if (other !== node) await node.command('CLUSTER', 'MEET', '127.0.0.1', other.port);
      }
    }
    await Promise.all(
      this.nodes.map((node) =>
        until(() => this.#isComplete(node), {
          what: `the cluster node on port ${node.port} knows all others and serves`,
        }),
      ),
    );
  }

  async #isComplete(node: RedisServer): Promise<boolean> {
    const info = (await node.command('CLUSTER', 'INFO')) as string;
    const nodes = (await node.command('CLUSTER', 'NODES')) as string;
    return (
      info.includes('cluster_state:ok') &&
      info.includes(`cluster_slots_ok:${SLOTS}`) &&
      info.includes(`cluster_known_nodes:${this.nodes.length}`) &&
      !nodes.includes('handshake')
    );
  }
}

function startNode(): Promise<RedisServer> {
  return RedisServer.start({ args: ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000'] });
}

function slotsOf(index: number, masters: number): number[] {
  const first = Math.floor((index * SLOTS) / masters);
  const end = Math.floor(((index + 1) * SLOTS) / masters);
  return Array.from({ length: end - first }, (_, offset) => first + offset);
}
