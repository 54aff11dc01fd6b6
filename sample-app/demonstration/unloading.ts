import type { Unloaded } from '../shop/deliveries/deliveries.service.js';
import type { ShopInstance } from './shop-instance.js';

export type Unloading = Promise<Unloaded>;

/** Sends several deliveries to an instance at once. */
export function unloadAt(instance: ShopInstance, sku: string, deliveries: number[]): Unloading[] {
  return deliveries.map((boxes) => {
    const unloaded = instance.post('/deliveries', { sku, boxes }).then(async (response) => {
      if (response.ok) return (await response.json()) as Unloaded;
      throw new Error(`${instance.name} could not unload: it answered ${response.status}.`);
    });
    // The error is reported where the promise is awaited, unless something else fails first.
    unloaded.catch(() => {});
    return unloaded;
  });
}
