/**
 * Where locks can be kept, by the `store` of a participant. `open(fault, scratch)` gives
 *
 *   ports, isCluster      of the servers that processes connect to
 *   hasProxies            whether each process reaches the first of them by a proxy of its own, which any TCP can pass
 *   stop(count), go()     pause servers, and let them go on
 *   and what the faults call whose `stores` name this store
 *
 * A server has to be this cell's own, which `open` checks, and dies with its process group.
 */
import { openRedisStore } from './redis-store.mjs';
import { openMariaDbStore, openPostgresStore } from './sql-store.mjs';

export const STORES = { redis: openRedisStore, postgres: openPostgresStore, mariadb: openMariaDbStore };
