import { expect, it } from 'vitest';
import { readCommandLine } from '../../lib/cli/command-line.js';
import { serversOf } from '../../lib/cli/servers.js';

const read = (argv: string[], env: Record<string, string> = {}) => serversOf(readCommandLine(argv), env);

it.each<[argv: string[], env: Record<string, string>, servers: object]>([
  [[], { REDIS_URL: 'redis://a:7000/3' }, { redis: { host: 'a', port: 7000, db: 3 } }],
  [
    ['--redis', 'rediss://user:p%40ss@[::1]?family=6'],
    { REDIS_PASSWORD: 'pass' },
    { redis: { host: '::1', port: 6379, username: 'user', password: 'p@ss', tls: {}, family: 6 } },
  ],
  [['--redis', '/run/redis.sock'], {}, { redis: { path: '/run/redis.sock' } }],
  [
    ['--redlock', 'redis://:a,b@x:1,redis://y', '--redlock', 'rediss://z'],
    {},
    {
      redlock: [
        { host: 'x', port: 1, password: 'a,b' },
        { host: 'y', port: 6379 },
        { host: 'z', port: 6379, tls: {} },
      ],
    },
  ],
  [
    ['--redis', 'redis://a'],
    { REDIS_USERNAME: 'user', REDIS_PASSWORD: 'pass', REDIS_TLS: '1', REDIS_URL: 'redis://b' },
    { redis: { host: 'a', port: 6379, username: 'user', password: 'pass', tls: {} } },
  ],
  [
    ['--sentinel', 'a', '--sentinel-name', 'main'],
    { REDIS_PASSWORD: 'pass', REDIS_SENTINEL_PASSWORD: 'other', REDIS_TLS: '1' },
    {
      redis: {
        ...{ sentinels: [{ host: 'a', port: 26_379 }], name: 'main', password: 'pass', tls: {} },
        ...{ sentinelPassword: 'other', sentinelTLS: {}, enableTLSForSentinelMode: true },
      },
    },
  ],
])('the servers of %j with %j are read from options, else from the environment', (argv, env, servers) => {
  expect(read(argv, env)).toEqual(servers);
});

it('the servers get the password of MySQL from MYSQL_PWD, unless their URL has one', () => {
  const env = { MYSQL_PWD: 'p@ss%40' };
  expect(read(['--mysql', 'mysql://me@a/shop'], env)).toEqual({ mysql: 'mysql://me:p%40ss%2540@a/shop' });
  for (const given of ['mysql://me:mine@a/shop', 'no URL'])
    expect(read(['--mysql', given], env)).toEqual({ mysql: given });
});

it('the servers are described by options of node-redis if only that is installed', () => {
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
