import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { LockOptionsError } from 'nest-redis-lock';
import { findRedisServer } from '../../servers/find-redis-server.js';
import { HostileServer } from '../fuzz/hostile-server.js';
import { openLocks } from '../support/open-locks.js';
import { codes, diagnosisOf } from './diagnosed.js';
import { failureOf } from '../support/failed-start.js';
import { redisServer, redisServers } from '../support/stage.js';
import { until } from '../support/until.js';
import { posingAs } from './doors.js';

/** The relevant parts of answers to INFO, as users of these servers published them: dragonflydb/dragonfly#5431, … */
const DRAGONFLY = `# Server
redis_version:7.4.0
dragonfly_version:df-v1.31.0
redis_mode:standalone
arch_bits:64
uptime_in_seconds:10275

# Memory
maxmemory:419430400
cache_mode:store
maxmemory_policy:noeviction

# Replication
role:master
connected_slaves:0
master_replid:6f2a7a4d9c1b5e80317c2f44d05be96a18c0d7e3

# Cluster
cluster_enabled:0
`;

/** … Snapchat/KeyDB#849 and #419, … */
const KEYDB = `# Server
redis_version:6.3.4
redis_git_sha1:7e7e5e57
redis_mode:standalone
run_id:2ad066d000b5404878de3b70f638b85aff6de528
uptime_in_seconds:3734

# Memory
maxmemory:0
maxmemory_policy:noeviction

# Persistence
aof_enabled:1

# Replication
role:active-replica
master_global_link_status:up
connected_masters:1
master_host:172.31.27.147
master_port:6379
master_link_status:up
slave_read_only:0
connected_slaves:1
slave0:ip=172.31.27.147,port=6379,state=online,offset=372389,lag=1
master_replid:86152b0b3ee5b0e8b4f929520b54ee4ca79bed6a
master_replid2:0000000000000000000000000000000000000000

# KeyDB
mvcc_depth:0
`;

/** … and microsoft/garnet#649. The missing parts are as in the source of Garnet 2.1.4. */
const GARNET = `# Server
garnet_version:1.0.19
os:Unix 5.15.131.2
uptime_in_seconds:102193
run_id:f5d215e79b2912fa2877d35878a1cc1f790af57c
redis_version:7.2.5
redis_mode:standalone

# Memory
proc_physical_memory_size:106892312576
aof_memory_size:-1

# Replication
role:master
connected_slaves:0
master_replid:0000000000000000000000000000000000000000
master_replid2:0000000000000000000000000000000000000000
`;

const diagnose = async (info: string) => {
  const { url, name } = await posingAs(info, await redisServer());
  const { nodes, findings } = await diagnosisOf({ redis: url, lazyConnect: true });
  return { node: nodes[0]!, name, findings };
};

it('the doctor names the server that the tests run on, and its own version [G400]', async () => {
  const { path, env } = findRedisServer()!;
  const says = execFileSync(path, ['--version'], { env, encoding: 'utf8' }); // "Valkey server v=8.0.1 sha=…"
  const [, server, version] = /^(\w+) server v=(\S+)/.exec(says)!;
  const { nodes } = await diagnosisOf({ redis: (await redisServer()).url });
  expect(nodes).toMatchObject([{ server, version }]);
  expect(nodes[0]!.summary).toContain(`${server} ${version}, master, `);
});

it.each([
  ['Valkey', '9.1.2', '# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nrole:master'],
  ['Redict', '7.3.6', '# Server\r\nredict_version:7.3.6\r\nredis_version:7.2.4\r\nrole:master'],
  ['Dragonfly', '1.31.0', DRAGONFLY],
  ['KeyDB', '6.3.4', KEYDB],
  ['Garnet', '1.0.19', GARNET],
])('the doctor names %s %s, not the Redis that it resembles [G401]', async (server, version, info) => {
  const { node } = await diagnose(info);
  expect(node).toMatchObject({ server, version, notChecked: [] });
  expect(node.summary).toMatch(new RegExp(`^${server} ${version.replaceAll('.', '\\.')}, `));
});

it('the doctor compares the version of KeyDB with the oldest one of Redis, but not the versions of other servers', async () => {
  const old = await diagnose(KEYDB.replace('6.3.4', '6.0.18').replace('active-replica', 'master'));
  expect(codes(old.findings)).toEqual(['error too-old']);
  expect(old.findings[0]!.message).toContain('runs KeyDB 6.0.18: locks need KeyDB 6.2 or newer');
  expect(codes((await diagnose(DRAGONFLY)).findings)).not.toContain('error too-old'); // its own version is 1.31.0
});

it('an application does not start on an active replica of KeyDB [G402]', async () => {
  const { name, node, findings } = await diagnose(KEYDB);
  expect(node).toMatchObject({ role: 'replica', activeReplica: true, replicaOf: '172.31.27.147:6379' });
  expect(node.summary).toContain('active replica of 172.31.27.147:6379');
  expect(codes(findings)).toEqual(['error active-replica']);
  const message = `${name} is an active replica of 172.31.27.147:6379: both accept writes`;
  expect(findings[0]!.message).toContain(message);
  const { url } = await posingAs(KEYDB, await redisServer());
  const error = await failureOf({ redis: url });
  expect(error).toBeInstanceOf(LockOptionsError);
  expect(error.message).toContain('is an active replica of 172.31.27.147:6379');
});

it('the doctor reports that Garnet does not show whether its scripts are atomic, and has no append-only file [G403]', async () => {
  const { findings } = await diagnose(GARNET);
  expect(codes(findings)).toEqual(['error scripts-not-atomic', 'warning no-persistence']);
  expect(findings[0]!.message).toContain('--lua-transaction-mode');
  expect(findings[1]!.message).toContain('Start it with --aof and --recover.');
  const durable = await diagnose(GARNET.replace('aof_memory_size:-1', 'aof_memory_size:67108864'));
  expect(codes(durable.findings)).toEqual(['error scripts-not-atomic']);
});

it('the doctor reports a server on which scripts are disabled [G404]', async () => {
  const server = await HostileServer.start();
  try {
    await server.react({ bytes: '-ERR This instance has Lua scripting support disabled\r\n' });
    const locks = await openLocks({ redis: `redis://127.0.0.1:${server.port}`, lazyConnect: true });
    const { findings } = await until(
      async () => {
        const diagnosis = await locks.diagnose();
        return codes(diagnosis.findings).includes('error no-scripts') ? diagnosis : undefined;
      },
      { what: 'the doctor finds it' },
    );
    expect(findings.find(({ code }) => code === 'no-scripts')!.message).toContain('Start Garnet with --lua');
  } finally {
    await server.stop();
  }
});

it('the doctor reports that Dragonfly has no append-only file, and evicts in its cache mode [G405]', async () => {
  const { findings, node } = await diagnose(DRAGONFLY);
  expect(node.persistence).toMatchObject({ appendOnly: false });
  expect(codes(findings)).toEqual(['warning no-persistence']);
  expect(findings[0]!.message).toContain('is Dragonfly, which has no append-only file');
  const cache = DRAGONFLY.replace(':store', ':cache').replace(':noeviction', ':eviction');
  const [eviction] = (await diagnose(cache)).findings;
  expect(eviction).toMatchObject({ code: 'eviction', message: expect.stringContaining('without --cache_mode') });
});

it('the doctor reports nodes of a Redlock that show no run_id: without it none is admitted [G406]', async () => {
  const servers = await redisServers(3);
  const doors = await Promise.all(servers.map((server, at) => posingAs(DRAGONFLY.replace('6f2a', `${at}f2a`), server)));
  const found = async (redlock: string[], admission?: boolean) =>
    codes((await diagnosisOf({ redlock, admission, lazyConnect: true })).findings);
  const [one, ...others] = doors.map(({ url }) => url);
  expect(await found([one!, ...others])).toEqual(['error no-run-id', 'error no-run-id', 'error no-run-id']);
  expect(await found([one!, servers[1]!.url, servers[2]!.url])).toEqual(['warning no-run-id']);
  expect(await found([one!, ...others], false)).toEqual([]);
});
