import type { Unloaded } from '../shop/deliveries/deliveries.service.js';
import type { ShopInstance } from './shop-instance.js';

export type Unloading = Promise<Unloaded>;

/** Deliveries that arrive at an instance at once. */
export function unloadAt(instance: ShopInstance, sku: string, deliveries: number[]): Unloading[] {
  return deliveries.map((boxes) => {
    const unloaded = instance.post('/deliveries', { sku, boxes }).then(async (response) => {
      if (response.ok) return (await response.json()) as Unloaded;
      throw new Error(`${instance.name} could not unload: it answered ${response.status}.`);
    });
    // Reported where it is awaited, unless something else fails before.
    unloaded.catch(() => {});
    return unloaded;
  });
}
