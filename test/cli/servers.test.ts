import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Cluster } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { readCommandLine } from '../../lib/cli/command-line.js';
import { serversOf } from '../../lib/cli/servers.js';
import { freshKey } from '../support/claims.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { SentinelGroup } from '../support/redis-sentinel.js';
import { until } from '../support/until.js';
import { call } from './call.js';

const read = (argv: string[], env: Record<string, string> = {}) => serversOf(readCommandLine(argv), env);

describe('The servers of a command line', () => {
  it.each([
    ['redis://a', { host: 'a', port: 6379 }],
    ['redis://a:7000/3', { host: 'a', port: 7000, db: 3 }],
    ['redis://user:p%40ss@[::1]:7000', { host: '::1', port: 7000, username: 'user', password: 'p@ss' }],
    ['rediss://:pass@a?family=6', { host: 'a', port: 6379, password: 'pass', tls: {}, family: 6 }],
    ['/run/redis.sock', { path: '/run/redis.sock' }],
  ])('are read from %s', (url, options) => {
    expect(read(['--redis', url])).toEqual({ redis: options });
    expect(read([], { REDIS_URL: url })).toEqual({ redis: options });
  });

  it('are read from a list with commas, also in passwords, and from an option that is repeated', () => {
    const nodes = ['redis://:a,b@x:1', 'redis://y', 'rediss://z'];
    const expected = {
      redlock: [
        { host: 'x', port: 1, password: 'a,b' },
        { host: 'y', port: 6379 },
        { host: 'z', port: 6379, tls: {} },
      ],
    };
    expect(read(['--redlock', nodes.join(',')])).toEqual(expected);
    expect(read(nodes.flatMap((node) => ['--redlock', node]))).toEqual(expected);
  });

  it('get user, password and TLS from the environment, unless their URL has others', () => {
    const folder = mkdtempSync(join(tmpdir(), 'certificates-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, 'ca.pem'), 'PEM');
    const env = { REDIS_USERNAME: 'user', REDIS_PASSWORD: 'pass', REDIS_SENTINEL_PASSWORD: 'other', REDIS_TLS: '1' };
    const access = { username: 'user', password: 'pass', tls: {} };
    expect(read(['--redis', 'redis://a'], { ...env, REDIS_URL: 'redis://b' })).toEqual({
      redis: { host: 'a', port: 6379, ...access },
    });
    expect(read(['--redis', 'redis://me:mine@a'], env)).toEqual({
      redis: { host: 'a', port: 6379, username: 'me', password: 'mine', tls: {} },
    });
    const ca = { REDIS_TLS_CA: join(folder, 'ca.pem') };
    expect(read(['--redis', 'redis://a'], ca)).toEqual({
      redis: { host: 'a', port: 6379, tls: { ca: Buffer.from('PEM') } },
    });
    expect(read(['--sentinel', 'a,b:7000,[::1]:7001', '--sentinel-name', 'main'], env)).toEqual({
      redis: {
        sentinels: [
          { host: 'a', port: 26_379 },
          { host: 'b', port: 7000 },
          { host: '::1', port: 7001 },
        ],
        name: 'main',
        sentinelPassword: 'other',
        sentinelTLS: {},
        enableTLSForSentinelMode: true,
        ...access,
      },
    });
  });

  it('get the password of MySQL from MYSQL_PWD, unless their URL has one', () => {
    const env = { MYSQL_PWD: 'p@ss%40' };
    expect(read(['--mysql', 'mysql://me@a/shop'], env)).toEqual({ mysql: 'mysql://me:p%40ss%2540@a/shop' });
    for (const given of ['mysql://me:mine@a/shop', 'no URL'])
      expect(read(['--mysql', given], env)).toEqual({ mysql: given });
  });

  it('are those of a Cluster, with the same credentials for all of its nodes', async () => {
    const { redis } = read(['--cluster', 'rediss://a:1,rediss://b'], { REDIS_PASSWORD: 'pass' }) as {
      redis: () => Promise<Cluster>;
    };
    const cluster = await redis();
    cluster.disconnect();
    expect(cluster.options.redisOptions).toMatchObject({ password: 'pass', tls: {} });
    expect(cluster.options.dnsLookup).toBeTypeOf('function');
  });

  it('are described by options of node-redis where that alone is installed', () => {
    const described = (argv: string[], env = {}) => serversOf(readCommandLine(argv), env, 'redis');
    const login = { username: undefined, password: 'pass' };
    expect(described(['--redis', 'rediss://me:mine@a:7000/3?family=6'])).toEqual({
      redis: {
        username: 'me',
        password: 'mine',
        database: 3,
        socket: { host: 'a', port: 7000, family: 6, tls: true },
      },
    });
    expect(described(['--redis', '/run/redis.sock'])).toMatchObject({ redis: { socket: { path: '/run/redis.sock' } } });
    const secret = { REDIS_PASSWORD: 'pass', REDIS_SENTINEL_PASSWORD: 'other' };
    expect(described(['--redlock', 'redis://a,redis://b,redis://c'], secret)).toMatchObject({
      redlock: ['a', 'b', 'c'].map((host) => ({ ...login, database: 0, socket: { host, port: 6379 } })),
    });
    expect(described(['--cluster', 'rediss://a:1,rediss://b'], secret)).toEqual({
      redis: {
        rootNodes: [{ socket: { host: 'a', port: 1 } }, { socket: { host: 'b', port: 6379 } }],
        defaults: { ...login, socket: { tls: true } },
      },
    });
    expect(described(['--sentinel', 'a,b:7000', '--sentinel-name', 'main'], secret)).toEqual({
      redis: {
        name: 'main',
        sentinelRootNodes: [
          { host: 'a', port: 26_379 },
          { host: 'b', port: 7000 },
        ],
        nodeClientOptions: { ...login, socket: {} },
        sentinelClientOptions: { username: undefined, password: 'other', socket: {} },
      },
    });
  });

  describe('that run', () => {
    /** They get ready side by side. */
    let starting: readonly [Promise<RedisCluster>, Promise<SentinelGroup>];
    beforeAll(() => {
      starting = [RedisCluster.start(), SentinelGroup.start()];
    });
    afterAll(() => Promise.all(starting.map(async (servers) => (await servers).stop())));

    it('can be a Cluster', async () => {
      const cluster = await starting[0];
      const url = cluster.nodes[0]!.url;
      const key = freshKey();
      const held = ['run', key, '--hold', '1m', '--cluster', url, '--', 'true'];
      expect(await call(held)).toMatchObject({ code: 0 });
      expect(await call(['inspect', key, '--cluster', url])).toMatchObject({ code: 0 });
      const { out } = await call(['ls', '--cluster', url]);
      expect(out.split('\t')[0]).toBe(key);
      expect(await call(['release', key, '--force', '--yes', '--cluster', url])).toMatchObject({ code: 0 });
      // A server of a busy machine may not answer in the time that the doctor has.
      await until(async () => (await call(['doctor', '--cluster', url])).code === 0, {
        what: 'the doctor finds nothing',
      });
    });

    it('can be what Sentinel names', async () => {
      const group = await starting[1];
      const { sentinels, name } = group.options;
      const list = sentinels!.map(({ host, port }) => `${host}:${port}`).join(',');
      const on = ['--sentinel', list, '--sentinel-name', name!];
      expect(await call(['run', 'x', '--hold', '1m', ...on, '--', 'true'])).toMatchObject({ code: 0 });
      expect(await call(['inspect', 'x', ...on])).toMatchObject({ code: 0 });
      expect(await call(['inspect', 'x', '--redis', group.primary.url])).toMatchObject({ code: 0 });
    });
  });
});
