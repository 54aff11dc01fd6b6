import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { PostgresServer } from '../support/postgres-server.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { compileFile, compileLibrary } from '../support/compiled-library.js';
import { untilQueued } from '../support/queue.js';
import { until } from '../support/until.js';
import type { LockService, RedisLockModuleOptions } from './library.js';
import type { Library } from './mutant.js';
import { MUTANTS } from './mutants.js';
import { SQL_MUTANTS } from './sql-mutants.js';

const EXTEND_SCRIPTS = ['EXTEND', 'RESTORE'];
const SCRIPTS_THAT_MINT = ['ACQUIRE', 'TURN', 'GIVE_AND_TURN', 'RELEASE', 'WITHDRAW', 'FORCE_RELEASE'];
const SERVING_SCRIPTS = [
  'CROWD',
  'DOWNGRADE',
  'FORCE_RELEASE',
  'GIVE_AND_TURN',
  'GIVE_CROWD',
  'RELEASE',
  'TURN',
  'WITHDRAW',
];

/** What each mutant changes in the library. */
const CHANGES: Record<string, string[]> = {
  'release-without-owner-check': ofScripts(['RELEASE']),
  'deadline-from-the-reply': ofBackends('acquire', 'extend'),
  'restarted-node-votes-at-once': [],
  'token-without-write-back': ['RedisNode.raiseFence', 'RedisNode.vote'],
  'counter-not-seeded': ofScripts(SCRIPTS_THAT_MINT),
  'vote-not-kept': ['RedisNode.vote', ...ofScripts(['VOTE', 'VOTE_OR_QUEUE'])],
  'cohort-after-the-loss': [...ofScripts(EXTEND_SCRIPTS), 'Line.giveBack'],
  'subscription-never-doubted': ['PlainInbox.check'],
  'refusals-in-microtasks': ['RefusalGate.settle'],
  'replica-is-kept': ['RedisConnection.leaveReplica'],
  'taken-by-force-and-passed-on': ['NodesBackend.forceRelease', 'RedisNode.listen'],
  'extension-that-always-counts': ofScripts(EXTEND_SCRIPTS),
  'held-until-told': ['Lease.checkState', 'Lease.lose', 'Lease.release'],
  'leader-releases-first': ['Term.close'],
  'set-in-the-order-of-the-caller': ['LockService.acquireAll'],
  'set-keeps-what-it-gives-back': ['LockService.acquireAll'],
  'lock-without-ttl': ofScripts(['ACQUIRE', 'VOTE', 'TURN', 'GIVE_AND_TURN', 'VOTE_OR_QUEUE']),
  'limit-ignored': ofScripts(SERVING_SCRIPTS),
  'reader-joins-writer': ofScripts(['CROWD', 'GIVE_CROWD']),
  'downgrade-with-a-gap': ['RedisNode.transfer'],
  'stale-places-served': ['RedisNode.decline'],
  'adopted-with-the-old-token': ['RedisNode.transfer'],
  'held-beyond-the-limit': ['Lease.limit'],
  'expired-holders-count': ofScripts([...SERVING_SCRIPTS.filter((name) => name !== 'RELEASE'), 'EXTEND_CROWD']),
  'served-past-the-head': ofScripts(SERVING_SCRIPTS),
  'shared-without-its-token': ['Leases.pass'],
  'begun-with-what-another-wanted': ['Bid.place'],
  'detached-under-the-old-owner': ofScripts(['TRANSFER']),
  'row-given-by-anyone': ['StatementRunner.run'],
  'row-taken-early': ['StatementRunner.run'],
  'fence-not-raised': ['StatementRunner.run'],
  'guard-that-guards-nothing': ['MysqlNode.guard', 'PostgresNode.guard'],
};

let redis: RedlockNodes;
let postgres: PostgresServer;

beforeAll(async () => {
  [redis, postgres] = await Promise.all([RedlockNodes.start(3), PostgresServer.start()]);
});

afterAll(() => Promise.all([redis.stop(), postgres.stop()]));

describe('the mutants of the chaos run', () => {
  it.each(Object.entries({ ...MUTANTS, ...SQL_MUTANTS }))(
    'mutant %s changes what it says of the library [G145]',
    async (name, { inject, options = {} }) => {
      const library = await copyOfLibrary();
      const before = membersOf(library);
      inject?.(library);
      const changed = [...membersOf(library)].filter(([member, value]) => value !== before.get(member));
      expect(changed.map(([member]) => member).sort()).toEqual([...CHANGES[name]!].sort());
      expect(changed.length + Object.keys(options).length).toBeGreaterThan(0);
      const redlock = ['redis://a', 'redis://b', 'redis://c'];
      expect(library.resolveOptions({ redlock, ...options })).toMatchObject(options);
    },
  );

  // Or else it would be caught, or missed, for want of any lock.
  it.each(Object.entries(MUTANTS))('%s takes, extends, hands over and releases a lock', async (name, mutant) => {
    const library = await copyOfLibrary();
    mutant.inject?.(library);
    const nodes = mutant.nodes === 1 ? { redis: redis.urls[0]! } : { redlock: redis.urls };
    const [locks, others] = [await open(library, { ...nodes, ...mutant.options }), await open(library, nodes)];

    const lock = await locks.acquire(name);
    await lock.extend();
    expect(lock.isHeld).toBe(true);
    const waiting = others.acquire(name);
    await untilQueued(redis.servers[0]!, name, 1);
    expect(await lock.release()).toBe(true);
    expect(await (await waiting).release()).toBe(true);
  });

  it.each(Object.entries(SQL_MUTANTS))(
    '%s takes, extends, hands over and releases a lock in a table',
    async (key, mutant) => {
      const library = await copyOfLibrary();
      mutant.inject?.(library);
      const [locks, others] = [await openSql(library), await openSql(library)];

      const lock = await locks.acquire(key);
      await lock.extend();
      expect(lock.isHeld).toBe(true);
      const waiting = others.acquire(key);
      const queue = 'SELECT FROM resource_lock WHERE resource_lock_key = $1 AND cardinality(waiters) = 1';
      await until(async () => (await postgres.query(queue, [key])).length === 1, { what: `one waits for "${key}"` });
      expect(await lock.release()).toBe(true);
      const next = await waiting;
      await next.extend();
      expect(await next.release()).toBe(true);
    },
  );
});

/** The modules of a copy of the library, so that what is injected into them changes no other test. */
async function copyOfLibrary(): Promise<Library> {
  const compiled = compileLibrary();
  const copy = mkdtempSync(join(dirname(compiled), 'mutant-'));
  onTestFinished(() => rmSync(copy, { recursive: true }));
  cpSync(compiled, join(copy, 'lib'), { recursive: true });
  const modules = join(copy, 'test/chaos/library.js');
  mkdirSync(dirname(modules), { recursive: true });
  writeFileSync(modules, compileFile(fileURLToPath(new URL('library.ts', import.meta.url))));
  writeFileSync(join(copy, 'package.json'), '{ "type": "module" }');
  return (await import(pathToFileURL(modules).href)) as Library;
}

/** The methods and accessors of each class of the library, and the properties of each other object. */
function membersOf(library: Library): Map<string, unknown> {
  const members = new Map<string, unknown>();
  for (const [name, exported] of Object.entries<unknown>(library)) {
    const owner: unknown = typeof exported === 'function' ? exported.prototype : exported;
    for (const [member, { get, value }] of Object.entries(Object.getOwnPropertyDescriptors(owner ?? {})))
      members.set(`${name}.${member}`, get ?? value);
  }
  return members;
}

function ofBackends(...methods: string[]): string[] {
  return methods.flatMap((method) => [`SingleNodeBackend.${method}`, `RedlockBackend.${method}`]);
}

function ofScripts(scripts: string[]): string[] {
  return scripts.flatMap((script) => [`${script}.source`, `${script}.sha`]);
}

async function open(library: Library, options: RedisLockModuleOptions): Promise<LockService> {
  const { service } = await library.openLocks({ shutdownTimeoutMs: 0, ...options });
  onTestFinished(() => service.onApplicationShutdown());
  return service;
}

async function openSql(library: Library): Promise<LockService> {
  const options = { postgres: postgres.url, createTable: true, shutdownTimeoutMs: 0 };
  const { service } = await library.composeSqlLocks(options).open();
  onTestFinished(() => service.onApplicationShutdown());
  return service;
}
