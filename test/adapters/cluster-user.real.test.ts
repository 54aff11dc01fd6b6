import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { nodeRedis } from '../../lib/stores/redis/node-redis/node-redis-driver.js';
import { namesOn } from '../backends/names-of-clients.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { until } from '../support/until.js';

describe('with options of node-redis a user of a Cluster', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await RedisCluster.start();
    const rights = ['~*', '&*', '+@all', '-client'];
    for (const node of cluster.nodes) await node.command('ACL', 'SETUSER', 'janedoe', 'on', '>secret', ...rights);
  });
  afterAll(() => cluster.stop());

  const source = () => ({
    rootNodes: cluster.nodes.map(({ url }) => ({ url })),
    defaults: { username: 'janedoe', password: 'secret' },
  });

  it('needs no right to give connections their name', async () => {
    const locks = await openLocks({ redis: source(), commandTimeoutMs: 20_000 });
    for (let lock = 0; lock < 30; lock++) await locks.withLock(`${lock}`, () => {}); // of all masters
    for (const node of cluster.nodes) {
      const hasName = async () => (await namesOn(node)).includes('nest-redis-lock:default');
      await until(hasName, { what: 'the connection to each master has its name' });
    }
  });

  it('is not named where the answer of a master repeats its login', async () => {
    const client = await nodeRedis.open(source(), 'test');
    onTestFinished(() => client.close());
    client.listen({ accepted() {}, ready() {}, closed() {}, ended() {}, failed() {} });
    client.connect();
    await until(() => client.isReady, { what: 'it is ready' });
    const [master] = client.topology.masters();
    const script = "return redis.error_reply('ERR janedoe has the password secret')";
    await expect(master!.call('EVAL', script, 0)).rejects.toThrow('ERR *** has the password ***');
  });
});
