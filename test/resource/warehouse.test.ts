import { fencingHeaders } from 'nest-redis-lock';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Figures } from '../../sample-app/demonstration/demonstration.js';
import { problemsOf } from '../../sample-app/demonstration/verdict.js';
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

describe('the verdict on a paused holder', () => {
  const rush = { buyers: 3, stock: 1, soldOut: 2, errors: 0, medianWaitMs: 1, longestWaitMs: 1, left: 0 };
  const fenced = { lateWriteRefused: true, boxes: 17, boxesExpected: 17 };
  const pause = { ...fenced, paused: 'shop 3', successor: 'shop 2', answeredStatus: 503 };
  const figures = (changed: object): Figures => ({
    locks: 'redis',
    instances: 3,
    unlocked: { ...rush, sold: 3, oversold: 2 },
    locked: { ...rush, sold: 1, oversold: 0 },
    nights: { nights: 3, ticks: 9, ran: 3, skipped: 6 },
    crash: {
      ...fenced,
      killed: 'shop 1',
      successor: 'shop 2',
      ttlMs: 2_000,
      leaseLeftMs: 1_900,
      replacedAfterMs: 1_910,
      pause: { ...pause, ...changed },
    },
  });

  it.each<[change: object, problems: string[]]>([
    [{}, []],
    [{ lateWriteRefused: false }, ['paused holder was not refused']],
    [{ answeredStatus: 201 }, ['answered 201 to its caller']],
    [{ boxes: 15 }, ['15 boxes instead of 17']],
  ])('finds of %j: %j', (change, problems) => {
    expect(problemsOf(figures(change))).toEqual(problems.map((problem) => expect.stringContaining(problem)));
  });
});
