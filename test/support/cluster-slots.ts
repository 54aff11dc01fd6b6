import { clusterSlot, tagOfSlot } from '../../lib/stores/redis/client/cluster-slot.js';
import type { RedisCluster } from './redis-cluster.js';
import type { RedisServer } from './redis-server.js';

export { clusterSlot, tagOfSlot };

/** The master that had a key of Redis when the Cluster was created. */
export function masterOf({ nodes }: RedisCluster, name: string): RedisServer {
  return nodes[Math.floor((clusterSlot(name) * nodes.length) / 16_384)]!;
}

/** A key of a lock on each master. */
export function keysFor(cluster: RedisCluster, name: string): string[] {
  return cluster.nodes.map((node) => {
    for (let index = 0; ; index++) {
      const key = `${name} ${index}`;
      if (masterOf(cluster, `lock:{${key}}`) === node) return key;
    }
  });
}

/** Moves the slot of a lock to another master step by step, like `redis-cli --cluster reshard`. */
export class SlotMove {
  readonly from: RedisServer;
  readonly to: RedisServer;
  /** The fencing counter of the locks of this slot. */
  readonly counter: string;
  readonly #slot: number;

  constructor(
    private readonly cluster: RedisCluster,
    key: string,
    to?: RedisServer,
  ) {
    this.#slot = clusterSlot(`lock:{${key}}`);
    this.from = masterOf(cluster, `lock:{${key}}`);
    this.to = to ?? cluster.nodes.find((node) => node !== this.from)!;
    this.counter = `lock:fence{${tagOfSlot(this.#slot)}}`;
  }

  async begin(): Promise<void> {
    await this.to.command('CLUSTER', 'SETSLOT', this.#slot, 'IMPORTING', await idOf(this.from));
    await this.from.command('CLUSTER', 'SETSLOT', this.#slot, 'MIGRATING', await idOf(this.to));
  }

  async move(name: string): Promise<void> {
    const answer = await this.from.command('MIGRATE', '127.0.0.1', this.to.port, name, 0, 5_000);
    if (answer !== 'OK') throw new Error(`"${name}" was not moved: ${String(answer)}.`);
  }

  async moveAll(): Promise<void> {
    for (;;) {
      const names = (await this.from.command('CLUSTER', 'GETKEYSINSLOT', this.#slot, 100)) as string[];
      if (names.length === 0) return;
      for (const name of names) await this.move(name);
    }
  }

  async end(): Promise<void> {
    const id = await idOf(this.to);
    const others = this.cluster.nodes.filter((node) => node !== this.from && node !== this.to);
    for (const node of [this.to, this.from, ...others])
      await node.command('CLUSTER', 'SETSLOT', this.#slot, 'NODE', id);
  }
}

async function idOf(node: RedisServer): Promise<string> {
  return String(await node.command('CLUSTER', 'MYID'));
}
