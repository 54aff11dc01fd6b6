import type { ShopInstance } from './shop-instance.js';
import type { Site } from './site.js';

export interface RushFigures {
  buyers: number;
  stock: number;
  sold: number;
  oversold: number;
  soldOut: number;
  errors: number;
  /** How many boxes the warehouse counts afterwards. */
  left: number;
  medianWaitMs: number;
  longestWaitMs: number;
  /** The first of the errors. */
  error?: string;
}

interface Visit {
  result: 'sold' | 'sold out' | { error: string };
  waitMs: number;
}

const BUYERS = 90;
const STOCK = 40;

/** Lets all buyers want a box of the same product at once, spread over all instances. */
export async function rush(site: Site, sku: string, purchases: string): Promise<RushFigures> {
  const { instances, warehouse } = site;
  await warehouse.shelves.fill(sku, STOCK);
  const shops = Array.from({ length: BUYERS }, (_, buyer) => instances[buyer % instances.length]!);
  // They look first: the waits should measure the purchases, not instances that have just started.
  await Promise.all(shops.map((shop) => shop.get(`/products/${sku}`)));
  const visits = await Promise.all(shops.map((shop) => visit(shop, `/products/${sku}/${purchases}`)));
  const sold = visits.filter(({ result }) => result === 'sold').length;
  const soldOut = visits.filter(({ result }) => result === 'sold out').length;
  const errors = visits.flatMap(({ result }) => (typeof result === 'object' ? [result.error] : []));
  const waits = visits.map(({ waitMs }) => waitMs).sort((a, b) => a - b);
  return {
    buyers: BUYERS,
    stock: STOCK,
    sold,
    oversold: Math.max(0, sold - STOCK),
    soldOut,
    errors: errors.length,
    left: await warehouse.shelves.read(sku),
    medianWaitMs: Math.round(waits[Math.floor(waits.length / 2)]!),
    longestWaitMs: Math.round(waits.at(-1)!),
    error: errors[0],
  };
}

async function visit(instance: ShopInstance, path: string): Promise<Visit> {
  const startedAt = performance.now();
  let result: Visit['result'];
  try {
    const response = await instance.post(path);
    const answer = await response.text();
    if (response.ok) result = 'sold';
    else if (response.status === 410) result = 'sold out';
    else result = { error: `${instance.name} answered ${response.status}: ${answer}` };
  } catch (error) {
    result = { error: (error as Error).message };
  }
  return { result, waitMs: performance.now() - startedAt };
}
