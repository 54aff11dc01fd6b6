import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { Redis } from 'ioredis';
import { REDIS_URL } from './shop.js';

const BOXES = 20;
const BUYERS_OF_EACH_INSTANCE = 20;

const redis = new Redis(REDIS_URL, { lazyConnect: true, connectTimeout: 2_000, retryStrategy: () => null });
let problem = 'it does not answer';
redis.on('error', (error) => (problem = error.message));
try {
  await redis.connect();
} catch {
  console.error(`There is no Redis at ${new URL(REDIS_URL).host}: ${problem}.`);
  console.error('Start one, or set REDIS_URL to the address of yours: README.md says how.');
  process.exit(1);
}

const instances = [start(), start()];
await Promise.all(instances.map((instance) => answerOf(instance)));
await rush('without a lock', false);
const sold = await rush('with @Locked', true);
for (const instance of instances) instance.disconnect();
await redis.quit();
if (sold !== BOXES) process.exitCode = 1;

function start(): ChildProcess {
  return fork(new URL('./instance.js', import.meta.url));
}

/** Waits for the next message of an instance. */
async function answerOf(instance: ChildProcess): Promise<{ sold: number }> {
  const ended = once(instance, 'exit').then(() => {
    throw new Error('An instance has ended: its output above says why.');
  });
  const [answer] = (await Promise.race([once(instance, 'message'), ended])) as [{ sold: number }];
  return answer;
}

/** Lets all buyers come at once. @returns how many of them got a box */
async function rush(how: string, locked: boolean): Promise<number> {
  const sku = 'tea';
  await redis.set(`stock:${sku}`, BOXES, 'EX', 60);
  const answers = instances.map((instance) => answerOf(instance));
  for (const instance of instances) instance.send({ sku, buyers: BUYERS_OF_EACH_INSTANCE, locked });
  const sold = (await Promise.all(answers)).reduce((sum, answer) => sum + answer.sold, 0);
  console.log(`${how}: two instances sold ${sold} boxes of ${BOXES}`);
  return sold;
}
