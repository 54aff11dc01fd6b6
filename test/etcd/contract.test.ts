import { afterAll, beforeAll, describe, it } from 'vitest';
import { describeBackend, fromPromises } from 'nest-redis-lock/testing';
import { EtcdLocks } from '../../examples/etcd/src/etcd-locks.js';
import { EtcdCluster } from './etcd-cluster.js';

describeBackend(
  'etcd',
  async () => {
    const etcd = await EtcdCluster.start();
    const store = new EtcdLocks({ endpoints: etcd.endpoints, timeoutMs: 20_000 });
    return {
      backend: fromPromises(store, undefined, 20_000),
      resolutionMs: 1_000,
      checkLeft: async (prefix) => {
        const [key, range_end] = [`locks/${prefix}`, `locks/${prefix}~`].map((each) => btoa(each));
        const { kvs } = await etcd.ask('kv/range', { key, range_end });
        if (kvs) throw new Error('A released lock has left a key.');
      },
      tearDown: () => etcd.stop(),
    };
  },
  { describe, it, beforeAll, afterAll },
);
