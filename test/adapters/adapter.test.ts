import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { NodeRedisAdapter } from '../../lib/stores/redis/node-redis/node-redis-adapter.js';
import { describeAdapter } from './describe-adapter.js';
import { PACKAGES } from './packages.js';

// In simulated time.

for (const [name, each] of Object.entries(PACKAGES)) describeAdapter(name, each);

it('a Sentinel is not asked for its master once the adapter for node-redis is closed, and is closed again if it was being asked', async () => {
  let [asked, closed] = [0, 0];
  let refuse = () => {};
  const another = () => {
    asked++;
    return new Promise<never>((_, reject) => (refuse = () => reject(new Error('no Sentinel answers'))));
  };
  const onClose = () => void closed++;
  const open = () => {
    const client = new NodeRedisAdapter({ name: 'sentinel master', isOwned: true, asksAgain: true, another, onClose });
    client.listen({ accepted() {}, ready() {}, closed() {}, ended() {}, failed() {} });
    client.connect();
    return client;
  };
  const pausing = open();
  refuse();
  await sleep(10); // it will ask again after a pause
  pausing.close();
  await sleep(2_000);
  expect([asked, closed]).toEqual([1, 1]);
  const asking = open();
  asking.close();
  refuse();
  await sleep(2_000);
  expect([asked, closed]).toEqual([2, 3]);
});
