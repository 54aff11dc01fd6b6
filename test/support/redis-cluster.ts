import { RedisServer } from './redis-server.js';
import { until } from './until.js';

const SLOTS = 16_384;
/**
 * After how long without an answer a node counts as failed, in milliseconds: starting nodes wait for about this time.
 */
const STARTING_MS = 2_000;
/** The same once they serve: longer than any test pauses a node, so that the others serve meanwhile. */
const SERVING_MS = 120_000;

/** A real Redis Cluster of masters, each with an equal share of the slots. */
export class RedisCluster {
  readonly #replicas: RedisServer[] = [];

  private constructor(readonly nodes: readonly RedisServer[]) {}

  /** Takes about two seconds, for which Redis keeps a new cluster from serving. */
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
    await Promise.all([...this.nodes, ...this.#replicas].map((node) => node.stop()));
  }

  /**
   * Takes the right to a command from the existing users: by default the right to sharded messages, which Redis 6.2
   * does not have.
   */
  async forbid(command = 'ssubscribe', users: readonly string[] = ['default']): Promise<void> {
    for (const node of this.nodes) {
      for (const user of users) await node.command('ACL', 'SETUSER', user, `-${command}`);
    }
  }

  /** A replica of the first master. Works once. */
  async addReplica(): Promise<RedisServer> {
    const [master] = this.nodes;
    const replica = await startNode();
    this.#replicas.push(replica);
    const id = String(await master!.command('CLUSTER', 'MYID'));
    for (const { port } of this.nodes) await replica.command('CLUSTER', 'MEET', '127.0.0.1', port);
    const replicate = () =>
      replica.command('CLUSTER', 'REPLICATE', id).then(
        () => true,
        () => false,
      );
    await until(replicate, { what: 'the replica knows its master' });
    await until(async () => String(await master!.command('INFO', 'replication')).includes('state=online'), {
      what: 'it follows',
    });
    const serves = async () => {
      const info = String(await replica.command('CLUSTER', 'INFO'));
      return info.includes(`cluster_known_nodes:${this.nodes.length + 1}`) && info.includes('cluster_state:ok');
    };
    await until(serves, { what: 'it knows the others, and their slots' });
    await servesThroughPauses(replica);
    return replica;
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
    await Promise.all(this.nodes.map(servesThroughPauses));
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
  return RedisServer.start({ args: ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(STARTING_MS)] });
}

/** From now on it continues to serve while another node is paused. */
async function servesThroughPauses(node: RedisServer): Promise<void> {
  await node.command('CONFIG', 'SET', 'cluster-node-timeout', SERVING_MS);
}

function slotsOf(index: number, masters: number): number[] {
  const first = Math.floor((index * SLOTS) / masters);
  const end = Math.floor(((index + 1) * SLOTS) / masters);
  return Array.from({ length: end - first }, (_, offset) => first + offset);
}
