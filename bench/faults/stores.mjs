/**
 * The stores of locks, by the `store` of a participant. `open(fault, scratch)` returns
 *
 *   ports, isCluster      of the servers that processes connect to
 *   hasProxies            whether each process reaches the first of them through its own proxy, which works for any TCP
 *   stop(count), go()     pause servers, and resume them
 *   and the functions that faults call whose `stores` name this store
 *
 * A server must belong to this cell, which `open` checks. It dies with the process group of the cell.
 */
import { openRedisStore } from './redis-store.mjs';
import { openMariaDbStore, openPostgresStore } from './sql-store.mjs';

export const STORES = { redis: openRedisStore, postgres: openPostgresStore, mariadb: openMariaDbStore };
