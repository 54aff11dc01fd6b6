import type { Site } from './site.js';

/** Fills the shelves, and returns a text that says how to try the shop by hand. */
export async function invitation({ instances, warehouse }: Site): Promise<string> {
  for (const sku of ['tea', 'coffee', 'biscuits']) await warehouse.shelves.fill(sku, 50);
  const names = ['A', 'B', 'C'];
  const addresses = instances.map(({ url }, index) => `${names[index]}=${url}`);
  return [
    'The shop is open, with 50 boxes each of tea, coffee and biscuits. In another terminal:',
    '',
    `  export ${addresses.join(' ')} W=${warehouse.url}`,
    '  curl -X POST $A/products/tea/purchases',
    '',
    'More to try: sample-app/README.md. Ctrl-C closes it.',
  ].join('\n');
}
