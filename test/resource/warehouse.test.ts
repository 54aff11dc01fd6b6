import { fencingHeaders } from 'nest-redis-lock';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Warehouse } from '../../sample-app/demonstration/warehouse/warehouse.js';

let warehouse: Warehouse;

beforeAll(async () => {
  warehouse = await Warehouse.open();
  await warehouse.shelves.skus(); // its database has started
}, 60_000);

afterAll(() => warehouse.close());

function send(method: string, path: string, body: object, claim?: { key: string; fencingToken: number }) {
  const headers = { 'content-type': 'application/json', ...(claim && fencingHeaders(claim)) };
  return fetch(warehouse.url + path, { method, headers, body: JSON.stringify(body) });
}

async function put(sku: string, boxes: number, fencingToken?: number, key = `product:${sku}`): Promise<number> {
  const claim = fencingToken === undefined ? undefined : { key, fencingToken };
  return (await send('PUT', `/products/${sku}`, { boxes }, claim)).status;
}

describe('the warehouse of the sample', () => {
  it('refuses the stock of a former holder, and of nobody after the first holder', async () => {
    await warehouse.shelves.fill('tea', 50);
    expect(await put('tea', 49)).toBe(200);
    expect(await put('tea', 48, 34)).toBe(200);
    expect(await put('tea', 47, 34)).toBe(200);
    expect(await put('tea', 10, 33)).toBe(412);
    expect(await put('tea', 10)).toBe(412);
    expect(await warehouse.shelves.read('tea')).toBe(47);
  });

  it('takes a token for the product that it is about, and knows no other products', async () => {
    await warehouse.shelves.fill('coffee', 50);
    expect(await put('coffee', 10, 99, 'product:tea')).toBe(400);
    expect(await warehouse.shelves.read('coffee')).toBe(50);
    expect(await put('cocoa', 10, 34)).toBe(404);
  });

  it('files no report of a former holder, and none without a token', async () => {
    const file = async (by: number, fencingToken?: number) => {
      const claim = fencingToken === undefined ? undefined : { key: 'nightly', fencingToken };
      return (await send('POST', '/reports', { boxes: { tea: 1 }, by }, claim)).status;
    };
    expect([await file(1, 34), await file(2, 33), await file(3), await file(4, 35)]).toEqual([201, 412, 428, 201]);
    expect(await warehouse.reports.all()).toEqual([
      { boxes: { tea: 1 }, by: 1 },
      { boxes: { tea: 1 }, by: 4 },
    ]);
  });
});
