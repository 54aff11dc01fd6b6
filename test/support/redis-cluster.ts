import { randomBytes } from 'node:crypto';
import { RedisServer } from './redis-server.js';
import { until } from './until.js';

const SLOTS = 16_384;

/** A real Redis Cluster of masters, each with an equal part of the slots. */
export class RedisCluster {
  readonly #replicas: RedisServer[] = [];

  private constructor(readonly nodes: readonly RedisServer[]) {}

  /**
   * Redis keeps a master from serving in its first two seconds, but neither a replica nor one that is promoted. So each
   * node starts as the replica of a master that is in its nodes.conf only, and takes the slots of that one over.
   */
  static async start(masters = 3): Promise<RedisCluster> {
    const absent = Array.from({ length: masters }, () => nodeId());
    const started = await Promise.allSettled(
      absent.map((_, index) =>
        RedisServer.start({ args: CLUSTER_NODE, files: { 'nodes.conf': nodesConf(absent, index) } }),
      ),
    );
    const cluster = new RedisCluster(started.flatMap((node) => (node.status === 'fulfilled' ? [node.value] : [])));
    try {
      for (const node of started) if (node.status === 'rejected') throw node.reason;
      await cluster.#form(absent);
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  async stop(): Promise<void> {
    await Promise.all([...this.nodes, ...this.#replicas].map((node) => node.stop()));
  }

  /** Takes the right to a command away from the users, as far as they exist: by default that to sharded messages, which Redis 6.2 does not have. */
  async forbid(command = 'ssubscribe', users: readonly string[] = ['default']): Promise<void> {
    for (const node of this.nodes) {
      for (const user of users) await node.command('ACL', 'SETUSER', user, `-${command}`);
    }
  }

  /** A replica of the first master. Works once. */
  async addReplica(): Promise<RedisServer> {
    const [master] = this.nodes;
    const replica = await RedisServer.start({ args: CLUSTER_NODE });
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
    return replica;
  }

  async #form(absent: readonly string[]): Promise<void> {
    await Promise.all(
      this.nodes.map(async (node) => {
        const serves = async () => String(await node.command('CLUSTER', 'INFO')).includes('cluster_state:ok');
        // One that has heard too long of no master would only be slower.
        await until(serves, { what: `the replica on port ${node.port} serves`, timeoutMs: 1_500 }).catch(() => {});
        await node.command('CLUSTER', 'FAILOVER', 'TAKEOVER');
      }),
    );
    // Every node meets every other one: gossip alone would take seconds to spread the news.
    for (const node of this.nodes) {
      for (const other of this.nodes) {
        if (other !== node) await node.command('CLUSTER', 'MEET', '127.0.0.1', other.port);
      }
    }
    await Promise.all(
      this.nodes.map(async (node) => {
        const isSettled = async () => {
          const nodes = String(await node.command('CLUSTER', 'NODES'));
          return absent.every((id) => !new RegExp(`^${id}.* \\d+-\\d+$`, 'm').test(nodes));
        };
        await until(isSettled, { what: `the node on port ${node.port} knows who has taken the slots over` });
      }),
    );
    // Each forgets them before it can hear of them from another again.
    await Promise.all(this.nodes.flatMap((node) => absent.map((id) => node.command('CLUSTER', 'FORGET', id))));
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

const CLUSTER_NODE = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000'];

const nodeId = () => randomBytes(20).toString('hex');

/** Of a node that replicates an absent master. Distinct epochs, so that the nodes need not settle which of them is newer. */
function nodesConf(absent: readonly string[], index: number): string {
  const masters = absent.map((id, each) => {
    const [first, end] = [each, each + 1].map((part) => Math.floor((part * SLOTS) / absent.length));
    return `${id} 127.0.0.1:1@1 master - 0 0 0 connected ${first}-${end! - 1}`;
  });
  return [
    `${nodeId()} 127.0.0.1:0@0 myself,slave ${absent[index]} 0 0 0 connected`,
    ...masters,
    `vars currentEpoch ${10 * (index + 1)} lastVoteEpoch 0\n`,
  ].join('\n');
}
