import { Warehouse } from './warehouse/warehouse.js';
import { openBacking, type Backing, type Wishes } from './backing.js';
import { ShopInstance } from './shop-instance.js';

/** Everything that runs: the warehouse, the store of the locks, and the instances of the shop. */
export class Site {
  readonly instances: ShopInstance[] = [];
  #started = 0;

  private constructor(
    readonly backing: Backing,
    readonly warehouse: Warehouse,
    private readonly signal: AbortSignal,
  ) {}

  static async open(options: Wishes & { signal: AbortSignal }): Promise<Site> {
    const backing = await openBacking(options);
    const site = new Site(backing, await Warehouse.open(), options.signal);
    const starting = Array.from({ length: backing.instances }, () => site.startInstance());
    try {
      await Promise.all(starting);
      return site;
    } catch (error) {
      await Promise.allSettled(starting);
      await site.close();
      throw error;
    }
  }

  async startInstance(): Promise<ShopInstance> {
    this.signal.throwIfAborted();
    const name = `shop ${++this.#started}`;
    const env = { ...this.backing.env, WAREHOUSE_URL: this.warehouse.url };
    const instance = new ShopInstance(name, env, this.signal);
    this.instances.push(instance);
    await instance.listening();
    return instance;
  }

  async close(): Promise<void> {
    this.warehouse.network.letAllThrough();
    await Promise.all(this.instances.map((instance) => instance.stop()));
    await this.warehouse.close();
    await this.backing.close();
  }
}
