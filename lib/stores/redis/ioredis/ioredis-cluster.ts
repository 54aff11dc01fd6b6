import type { Cluster, Redis } from '../client/source.js';
import { clusterSlot, SLOTS } from '../client/cluster-slot.js';
import type { RedisClient, RedisTopology, Route } from '../client/redis-client.js';

/** The masters of a Cluster of ioredis. */
export class IoredisCluster implements RedisTopology {
  readonly isCluster = true;
  readonly database = 0;
  readonly #masters = new WeakMap<Redis, RedisClient>();

  /** @param adapter creates the adapter of a master */
  constructor(
    private readonly client: Cluster,
    private readonly adapter: (node: Redis) => RedisClient,
  ) {}

  get keyPrefix(): string {
    return this.client.options.keyPrefix ?? '';
  }

  routeOf(key: string): Route {
    const slot = clusterSlot(this.keyPrefix + key);
    // Overdue commands block both: a node that hangs serves none of its slots, and the next node of the slot may still run them.
    const node = this.client.slots[slot]?.[0];
    return node === undefined ? [slot] : [slot, node];
  }

  get servers(): ReadonlySet<string | undefined> {
    const { slots } = this.client;
    return new Set(Array.from({ length: SLOTS }, (_, slot) => slots[slot]?.[0]));
  }

  masters(): readonly RedisClient[] {
    return this.client.nodes('master').map((node) => {
      let master = this.#masters.get(node);
      if (!master) this.#masters.set(node, (master = this.adapter(node)));
      return master;
    });
  }

  duplicate(): RedisClient {
    throw new Error('A Cluster cannot be duplicated: duplicate its masters.');
  }
}
