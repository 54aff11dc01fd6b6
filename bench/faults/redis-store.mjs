/**
 * The Redis of a cell, in the form that its fault needs: one server, one with a lagging replica, five servers of a
 * Redlock, or a Cluster.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startRedisCluster } from '../cell/redis-cluster.mjs';
import { startRedisServer } from '../cell/redis-servers.mjs';
import { startProxy } from './proxy.mjs';

const LAG_MS = 1_000;
const NODES = 5;
const MASTERS = 3;

export async function openRedisStore({ form = 'one', keepsData = false }, scratch) {
  const settings = (port) => {
    const dir = join(scratch, String(port));
    mkdirSync(dir, { recursive: true });
    return ['--dir', dir, '--appendonly', keepsData ? 'yes' : 'no', '--appendfsync', 'always'];
  };
  const servers =
    form === 'cluster'
      ? await startRedisCluster(MASTERS, scratch)
      : await Promise.all(Array.from({ length: form === 'nodes' ? NODES : 1 }, () => startRedisServer(settings)));
  const replica = form === 'replica' ? await startReplica(servers[0].port, settings) : undefined;

  return {
    ports: servers.map(({ port }) => port),
    isCluster: form === 'cluster',
    /** Whether processes reach it through proxies: only if it is a single server. */
    hasProxies: servers.length === 1,
    stop: (count = servers.length) => servers.slice(0, count).forEach((server) => server.stop()),
    go: () => servers.forEach((server) => server.go()),
    kill: (...indexes) => Promise.all(indexes.map((index) => end(servers[index]))),
    async start(...indexes) {
      const start = async (index) => (servers[index] = await startRedisServer(settings, servers[index].port));
      await Promise.all(indexes.map(start));
    },
    flushAll: () => servers[0].control.flushall(),
    flushScripts: () => servers[0].control.script('FLUSH'),
    limitMemory: (bytes) => servers[0].control.config('SET', 'maxmemory', bytes),
    /** @returns the port of the replica, which lacks the last second */
    async loseMaster() {
      replica.lag.isHole = true; // together with the data on its way
      await end(servers[0]);
      return replica.port;
    },
    promote: () => replica.control.replicaof('NO', 'ONE'),
    moveSlots: (text) => moveSlots(servers, text),
  };
}

function end(server) {
  server.kill();
  return server.hasEnded;
}

async function startReplica(port, settings) {
  const lag = await startProxy(port);
  lag.delayMs = LAG_MS;
  const replica = await startRedisServer((own) => [...settings(own), '--replicaof', '127.0.0.1', String(lag.port)]);
  while (!(await replica.control.info('replication')).includes('master_link_status:up')) await sleep(100);
  return { ...replica, lag };
}

/** Moves each slot that has keys with this text to the next master, like `redis-cli --cluster reshard`. */
async function moveSlots(servers, text) {
  for (const [index, { control }] of servers.entries()) {
    const next = servers[(index + 1) % servers.length];
    const [sourceId, nextId] = await Promise.all([control, next.control].map((node) => node.cluster('MYID')));
    const keys = await control.keys(`*${text}*`);
    const slots = new Set(await Promise.all(keys.map((key) => control.cluster('KEYSLOT', key))));
    if (slots.size === 0) continue;
    for (const slot of slots) {
      await next.control.cluster('SETSLOT', slot, 'IMPORTING', sourceId);
      await control.cluster('SETSLOT', slot, 'MIGRATING', nextId);
      for (;;) {
        const batch = await control.cluster('GETKEYSINSLOT', slot, 100);
        if (batch.length === 0) break;
        await control.call('MIGRATE', '127.0.0.1', next.port, '', 0, 1_000, 'KEYS', ...batch);
      }
      for (const node of [next, ...servers.filter((each) => each !== next)])
        await node.control.cluster('SETSLOT', slot, 'NODE', nextId);
    }
    return;
  }
  throw new Error(`no master of ports ${servers.map(({ port }) => port).join(', ')} has a key with ${text}.`);
}
