import { inspect } from 'node:util';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { LockOptionsError, type RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';

/** By its form: a pool of node-redis. */
class Pool {
  readonly isOpen = true;
  readonly totalClients = 1;
  destroy(): void {}
  readonly options = { url: 'redis://:hunter2@a' };
  async EVALSHA(): Promise<void> {}
}

/** By its form: a client of redis 4, for one server or a Cluster. */
class ClientOf4 {
  readonly isOpen = false;
  readonly options = { url: 'redis://:hunter2@a' };
  async EVALSHA(): Promise<void> {}
  async disconnect(): Promise<void> {}
}

/** A client of a third library, and node-redis before its version 4. */
class OtherClient {
  readonly token = 'hunter2';
  async evalsha(): Promise<void> {}
}

/** By its form: @upstash/redis has such an object for its requests. */
class UpstashClient extends OtherClient {
  readonly client = { baseUrl: 'https://hunter2.example' };
}

class Getters {
  get host(): string {
    return 'hunter2';
  }
}

const lazy = (): Redis => {
  const client = new Redis({ lazyConnect: true });
  onTestFinished(() => client.disconnect());
  return client;
};

const EXPECTED =
  'a redis:// or rediss:// URL, options or a client of ioredis or node-redis, or a function that returns a client';

/** Options of node-redis, and what is said of them. */
const MISTAKES_OF_NODE_REDIS: [source: object, got: string][] = [
  [
    { socket: { host: 'a' }, retryStrategy: null },
    '"retryStrategy", which is an option of ioredis. Give those of one of them.',
  ],
  [{ url: undefined }, 'no url, socket.host or socket.path'],
  [{ url: 'redis://a', databse: 3 }, '"databse", which is not an option of createClient. Did you mean database?'],
  [{ url: 'redis://a', rootNodes: [{ url: 'redis://a' }] }, '"url", which is not an option of createCluster.'],
  [{ socket: { host: 'a', prot: 6380 } }, '"socket.prot", which is not an option of it. Did you mean port?'],
  [
    { url: 'redis://:hunter2@a', socket: { host: 'b' } },
    'two addresses, url and socket, that differ. Give one of them.',
  ],
  [{ url: 'redis://a', socket: { port: 6380 } }, 'two addresses, url and socket, that differ.'],
  [
    { url: 'redis://:hunter2@a?db=2', database: 3 },
    'two databases, in url and database, that differ. Give one of them.',
  ],
  [
    { url: 'redis://:hunter2@a', socket: { tls: true } },
    'url and a socket.tls that differ. Write rediss:// for TLS, and redis:// for none.',
  ],
  [{ url: 'rediss://:hunter2@a', socket: { tls: false } }, 'url and a socket.tls that differ.'],
  [
    { rootNodes: [{ url: 'redis://:hunter2@a' }], defaults: { socket: { tls: true } } },
    'rootNodes[0].url and a socket.tls that differ.',
  ],
  [{ url: 'redis://a', socket: { path: '/tmp/redis.sock' } }, 'two addresses, url and socket, that differ.'],
  [{ rootNodes: [{ url: 'redis://a', host: 'b' }] }, '"rootNodes[0].host", which is not an option of rootNodes.'],
  [
    { rootNodes: [{ url: 'redis://a' }], defaults: { url: 'redis://:hunter2@a' } },
    '"defaults.url", where they are for all servers. Give what it says',
  ],
  [
    { sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main', nodeClientOptions: { keyPrefix: 'hunter2' } },
    '"nodeClientOptions.keyPrefix", which it ignores. Give keyPrefix beside that.',
  ],
  [
    { rootNodes: [{ url: 'redis://a', keyPrefix: 'hunter2' }] },
    '"rootNodes[0].keyPrefix", which it ignores. Give keyPrefix beside that.',
  ],
];

/** Other options and URLs. */
const MISTAKES_IN_OPTIONS: [source: unknown, got: string][] = [
  ['https://hunter2.example', 'a Redis that is reached by HTTP. Locks need a connection'],
  [
    { url: 'https://example', token: 'hunter2' },
    'a Redis that is reached by HTTP. Locks need a connection to it, on which it says whose turn it is: give the redis://',
  ],
  [{ uri: 'redis://:hunter2@a' }, '"uri", which is not an option of ioredis. Give the URL by itself'],
  [{ urll: 'redis://:hunter2@a' }, 'Did you mean url of node-redis?'],
  [{ Socket: { host: 'a' } }, 'Did you mean socket of node-redis?'],
  [{ url: 'hunter2:6379' }, 'a string of another form. Write redis://host:port'],
  ['redis://u:a%zz@a', 'a URL whose user or password cannot be read'],
  [{ url: 'redis://u:a%ff@a' }, 'encoded: % as %25'],
  [{ url: 5 }, 'url a number. Is the variable that it comes from set?'],
  [{ socket: { port: 6380 } }, 'no url, socket.host or socket.path, so it would'],
  [
    { url: 'redis://a', wildcards: 'hunter2' },
    '"wildcards", which is not an option of createClient. If a newer redis has it, give a function: () => createClient({ … }).',
  ],
  [
    { sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main', nodeClientOption: {} },
    '"nodeClientOption", which is not an option of createSentinel. Did you mean nodeClientOptions?',
  ],
  [{ socket: { host: 'a', hostname: 'b' } }, '"socket.hostname", which is not an option of it. Did you mean host?'],
  [{ url: 'redis://a', socket: { tsl: true } }, '"socket.tsl", which is not an option of it. Did you mean tls?'],
  [{ socket: { host: 'a', port: NaN } }, 'socket.port NaN, which is not a port. Is the variable'],
  [{ url: '/tmp/redis.sock' }, 'url that is the path of a socket. Write socket: { path }.'],
  [{ rootNodes: [{ url: 'redis://a' }, { url: 'hunter2:6379' }] }, 'a string of another form. Write redis://host:port'],
  [
    { rootNodes: [{ socket: { host: 'a', prot: 1 } }] },
    '"rootNodes[0].socket.prot", which is not an option of it. Did you mean port?',
  ],
  [
    { rootNodes: [{ url: 'redis://a' }], defaults: { pasword: 'hunter2' } },
    '"defaults.pasword", which is not an option of createClient. Did you mean password?',
  ],
  [
    { sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main', sentinelClientOptions: { user: 'hunter2' } },
    '"sentinelClientOptions.user", which is not an option of createClient.',
  ],
  [
    { sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main', nodeClientOptions: { database: NaN } },
    'nodeClientOptions.database NaN, which is not a database.',
  ],
  [
    { sentinelRootNodes: [{ host: 'a', port: 1, url: 'redis://:hunter2@a' }], name: 'main' },
    '"sentinelRootNodes[0].url", which is not an option of sentinelRootNodes.',
  ],
  [
    { sentinelRootNodes: [{ host: 'a', port: NaN }], name: 'main' },
    'sentinelRootNodes[0].port NaN, which is not a port.',
  ],
  [{ rootNodes: [] }, 'rootNodes that is not a list of servers. Is the variable'],
  [
    { rootNodes: [{ url: 'redis://a' }, { socket: { port: 1 } }] },
    'rootNodes with a server that has no url and no host, so node-redis would connect to localhost.',
  ],
  [
    { sentinelRootNodes: [{ host: 'a', port: 1 }] },
    'sentinelRootNodes without the name of the master. Is the variable',
  ],
  [{ connection: { host: 'a' } }, '"connection", which is not an option of ioredis. Give its'],
  [{ redisOptions: {} }, '"redisOptions", which is not an option of ioredis. A Cluster'],
  [{ hots: 'prod' }, '"hots", which is not an option of ioredis. Did you mean host?'],
  [{ Host: 'prod' }, '"Host", which is not an option of ioredis. Did you mean host?'],
  [{ host: 'a', pasword: 'hunter2' }, '"pasword", which is not an option of ioredis. Did you'],
  [{ hostname: 'prod' }, '"hostname", which is not an option of ioredis. Did you mean host?'],
  [
    { host: 'a', wildcards: true },
    '"wildcards", which is not an option of ioredis. If a newer ioredis has it, give a function: () => new Redis({ … }).',
  ],
  [{}, 'no host, port, path or sentinels, so ioredis would connect to localhost:6379. Name the server'],
  [{ db: 3 }, 'no host, port, path or sentinels, so ioredis would connect to localhost:6379. Name the'],
  [
    { host: undefined, port: 6379 },
    'host undefined, so ioredis would connect to localhost. Is the variable that it comes from set?',
  ],
  [{ host: 'a', port: Number(undefined) }, 'port NaN, which is not a port. Is'],
  [{ host: 'a', port: 'hunter2' }, 'port a string, which is not a port. Is the variable'],
  [{ host: '' }, 'host "", so ioredis would connect to localhost. Is the variable that'],
  ['redis://', 'a URL without a host, so it would mean localhost'],
  ['redis:///3', 'a URL without a host, so it would mean localhost'],
];

/** What else may be handed in by mistake. */
const MISTAKES: [what: string, source: () => unknown, got: string][] = [
  [
    'a pool of node-redis',
    () => new Pool(),
    'a pool of node-redis, whose connections have no common order. Give a client',
  ],
  ['a client of another library', () => new OtherClient(), 'a client of neither (OtherClient). Give one of'],
  ['a client of @upstash/redis', () => new UpstashClient(), 'a Redis that is reached by HTTP. Locks need a connection'],
  ['a pipeline', () => lazy().pipeline(), 'a pipeline of ioredis. Give its client'],
  [
    'a promise',
    () => Promise.resolve(lazy()),
    'a Promise. Give a function that returns it, () => promise, or await it',
  ],
  ['nodes of a Cluster', () => [{ host: 'a' }], 'an array. The nodes of a Cluster belong in a client'],
  ['a URL object', () => new URL('redis://:hunter2@a'), 'a URL object. Give its text: url.href.'],
  ['a map', () => new Map([['host', 'hunter2']]), 'an object of the class Map without options'],
  ['an object whose options are getters', () => new Getters(), 'an object of the class Getters without options'],
  [
    'a client of redis 4',
    () => new ClientOf4(),
    'a client of redis 4. Give one of ioredis 5.4 or later or 6, or of redis 5.10',
  ],
  [
    'multi() of a client of node-redis',
    () => createClient({ url: 'redis://a' }).multi(),
    'what multi() or legacy() of a client of node-redis returns. Give the client itself.',
  ],
  [
    'legacy() of a client of node-redis',
    () => createClient({ url: 'redis://a' }).legacy(),
    'what multi() or legacy() of a client of node-redis returns. Give the client itself.',
  ],
];

const ALL: typeof MISTAKES = [
  ...MISTAKES,
  ...MISTAKES_IN_OPTIONS.map(([source, got]) => [inspect(source), () => source, got] as (typeof MISTAKES)[number]),
  ...MISTAKES_OF_NODE_REDIS.map(
    ([source, got]) =>
      [inspect(source), () => source, `options of node-redis with ${got}`] as (typeof MISTAKES)[number],
  ),
];

describe('a Redis source that a client would take for localhost', () => {
  it.each(ALL)('a Redis is not taken for localhost when it is given as %s [G243]', async (_, source, got) => {
    const redis = source() as string;
    const forms: [string, RedisLockModuleOptions][] = [
      ['redis', { redis }],
      ['redlock[1]', { redlock: ['redis://a', redis, 'redis://b'] }],
    ];
    for (const [name, options] of forms) {
      const opening = openLocks(options);
      await expect(opening).rejects.toThrow(`${name} must be ${EXPECTED}: got `);
      await expect(opening).rejects.toThrow(got);
      await expect(opening).rejects.toBeInstanceOf(LockOptionsError);
      await expect(opening).rejects.not.toThrow('hunter2');
    }
  });
});

describe('a source function that returns no client', () => {
  it.each<[what: string, made: () => unknown, got: string]>([
    ['nothing', () => undefined, 'nothing.'],
    ['a pool of node-redis', () => new Pool(), 'a pool of node-redis, whose connections have no common order.'],
    ['a client of redis 4', async () => new ClientOf4(), 'a client of redis 4. Give one of ioredis'],
    ['a client of @upstash/redis', () => new UpstashClient(), 'a Redis that is reached by HTTP. Locks need a'],
    ['a client of another library', async () => new OtherClient(), 'a client of neither (OtherClient).'],
    ['a pipeline', () => lazy().pipeline(), 'a pipeline of ioredis. Give its client'],
    [
      'options',
      () => ({ host: 'hunter2' }),
      'an object. Return new Redis(…) or createClient(…) with what it returns now.',
    ],
    [
      'a URL',
      async () => 'redis://:hunter2@a',
      'a string. Return new Redis(…) or createClient(…) with what it returns now.',
    ],
    ['another function', () => lazy, 'a function.'],
  ])('a source function is refused when it returns %s [G244]', async (_, made, got) => {
    const opening = openLocks({ redis: made as () => Redis });
    await expect(opening).rejects.toThrow(
      `A function given as a Redis source must return a client of ioredis or node-redis: got ${got}`,
    );
    await expect(opening).rejects.toBeInstanceOf(LockOptionsError);
    await expect(opening).rejects.not.toThrow('hunter2');
  });
});
