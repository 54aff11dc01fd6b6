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

/** What may be handed in by mistake; what is said of it. */
const MISTAKES: [what: string, source: () => unknown, got: string][] = [
  [
    'a pool of node-redis',
    () => new Pool(),
    'a pool of node-redis, whose connections have no common order. Give a client',
  ],
  ['a client of another library', () => new OtherClient(), 'a client of neither (OtherClient). Give one of'],
  ['an address of HTTP', () => 'https://hunter2.example', 'a Redis that is reached by HTTP. Locks need a connection'],
  ['a client of @upstash/redis', () => new UpstashClient(), 'a Redis that is reached by HTTP. Locks need a connection'],
  [
    'options of @upstash/redis',
    () => ({ url: 'https://example', token: 'hunter2' }),
    'a Redis that is reached by HTTP. Locks need a connection to it, on which it says whose turn it is: give the redis://',
  ],
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
  ['a uri', () => ({ uri: 'redis://:hunter2@a' }), '"uri", which is not an option of ioredis. Give the URL by itself'],
  [
    'options of both',
    () => ({ socket: { host: 'a' }, retryStrategy: null }),
    'options of node-redis with "retryStrategy", which is an option of ioredis. Give those of one of them.',
  ],
  [
    'a url that is not set',
    () => ({ url: undefined }),
    'options of node-redis with no url, socket.host or socket.path',
  ],
  ['a url with a letter too many', () => ({ urll: 'redis://:hunter2@a' }), 'Did you mean url of node-redis?'],
  ['a socket of another case', () => ({ Socket: { host: 'a' } }), 'Did you mean socket of node-redis?'],
  ['a url of another form', () => ({ url: 'hunter2:6379' }), 'a string of another form. Write redis://host:port'],
  ['a url with a broken escape', () => 'redis://u:a%zz@a', 'a URL whose user or password cannot be read'],
  ['a url with bytes that are no text', () => ({ url: 'redis://u:a%ff@a' }), 'encoded: % as %25'],
  ['a url that is no text', () => ({ url: 5 }), 'url a number. Is the variable that it comes from set?'],
  ['a socket without a host', () => ({ socket: { port: 6380 } }), 'no url, socket.host or socket.path, so it would'],
  [
    'a misspelt option of node-redis',
    () => ({ url: 'redis://a', databse: 3 }),
    'options of node-redis with "databse", which is not an option of createClient. Did you mean database?',
  ],
  [
    'an unknown option of node-redis',
    () => ({ url: 'redis://a', wildcards: 'hunter2' }),
    '"wildcards", which is not an option of createClient. If a newer redis has it, give a function: () => createClient({ … }).',
  ],
  [
    'options of two kinds of node-redis',
    () => ({ url: 'redis://a', rootNodes: [{ url: 'redis://a' }] }),
    'options of node-redis with "url", which is not an option of createCluster.',
  ],
  [
    'a misspelt option of a Sentinel',
    () => ({ sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main', nodeClientOption: {} }),
    '"nodeClientOption", which is not an option of createSentinel. Did you mean nodeClientOptions?',
  ],
  [
    'a misspelt port of a socket',
    () => ({ socket: { host: 'a', prot: 6380 } }),
    'options of node-redis with "socket.prot", which is not an option of it. Did you mean port?',
  ],
  [
    'a hostname of a socket',
    () => ({ socket: { host: 'a', hostname: 'b' } }),
    '"socket.hostname", which is not an option of it. Did you mean host?',
  ],
  [
    'a socket whose TLS is misspelt',
    () => ({ url: 'redis://a', socket: { tsl: true } }),
    '"socket.tsl", which is not an option of it. Did you mean tls?',
  ],
  [
    'a port of a socket whose variable is not set',
    () => ({ socket: { host: 'a', port: NaN } }),
    'socket.port NaN, which is not a port. Is the variable',
  ],
  [
    'a url and a socket with another host',
    () => ({ url: 'redis://:hunter2@a', socket: { host: 'b' } }),
    'options of node-redis with two addresses, url and socket, that differ. Give one of them.',
  ],
  [
    'a url and a socket with another port',
    () => ({ url: 'redis://a', socket: { port: 6380 } }),
    'options of node-redis with two addresses, url and socket, that differ.',
  ],
  [
    'a url and another database',
    () => ({ url: 'redis://:hunter2@a?db=2', database: 3 }),
    'options of node-redis with two databases, in url and database, that differ. Give one of them.',
  ],
  [
    'a url without TLS and a socket with it',
    () => ({ url: 'redis://:hunter2@a', socket: { tls: true } }),
    'options of node-redis with url and a socket.tls that differ. Write rediss:// for TLS, and redis:// for none.',
  ],
  [
    'a url with TLS and a socket without it',
    () => ({ url: 'rediss://:hunter2@a', socket: { tls: false } }),
    'options of node-redis with url and a socket.tls that differ.',
  ],
  [
    'a node without TLS in a Cluster with it',
    () => ({ rootNodes: [{ url: 'redis://:hunter2@a' }], defaults: { socket: { tls: true } } }),
    'options of node-redis with rootNodes[0].url and a socket.tls that differ.',
  ],
  [
    'a url and the path of a socket',
    () => ({ url: 'redis://a', socket: { path: '/tmp/redis.sock' } }),
    'options of node-redis with two addresses, url and socket, that differ.',
  ],
  [
    'a url that is a path',
    () => ({ url: '/tmp/redis.sock' }),
    'url that is the path of a socket. Write socket: { path }.',
  ],
  [
    'a node with a host beside its url',
    () => ({ rootNodes: [{ url: 'redis://a', host: 'b' }] }),
    'options of node-redis with "rootNodes[0].host", which is not an option of rootNodes.',
  ],
  [
    'a node with a url that is none',
    () => ({ rootNodes: [{ url: 'redis://a' }, { url: 'hunter2:6379' }] }),
    'a string of another form. Write redis://host:port',
  ],
  [
    'a node with a misspelt port',
    () => ({ rootNodes: [{ socket: { host: 'a', prot: 1 } }] }),
    '"rootNodes[0].socket.prot", which is not an option of it. Did you mean port?',
  ],
  [
    'a url for all nodes',
    () => ({ rootNodes: [{ url: 'redis://a' }], defaults: { url: 'redis://:hunter2@a' } }),
    'options of node-redis with "defaults.url", where they are for all servers. Give what it says',
  ],
  [
    'a misspelt option for all nodes',
    () => ({ rootNodes: [{ url: 'redis://a' }], defaults: { pasword: 'hunter2' } }),
    '"defaults.pasword", which is not an option of createClient. Did you mean password?',
  ],
  [
    'a misspelt option of the clients of a Sentinel',
    () => ({ sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main', sentinelClientOptions: { user: 'hunter2' } }),
    '"sentinelClientOptions.user", which is not an option of createClient.',
  ],
  [
    'a prefix of the clients of a Sentinel, which only a Sentinel puts before keys',
    () => ({
      sentinelRootNodes: [{ host: 'a', port: 1 }],
      name: 'main',
      nodeClientOptions: { keyPrefix: 'hunter2' },
    }),
    'options of node-redis with "nodeClientOptions.keyPrefix", which it ignores. Give keyPrefix beside that.',
  ],
  [
    'a prefix of a node of a Cluster',
    () => ({ rootNodes: [{ url: 'redis://a', keyPrefix: 'hunter2' }] }),
    'options of node-redis with "rootNodes[0].keyPrefix", which it ignores. Give keyPrefix beside that.',
  ],
  [
    'a database of a master behind Sentinels that is not set',
    () => ({ sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main', nodeClientOptions: { database: NaN } }),
    'nodeClientOptions.database NaN, which is not a database.',
  ],
  [
    'a Sentinel by its URL',
    () => ({ sentinelRootNodes: [{ host: 'a', port: 1, url: 'redis://:hunter2@a' }], name: 'main' }),
    '"sentinelRootNodes[0].url", which is not an option of sentinelRootNodes.',
  ],
  [
    'a Sentinel whose port is not set',
    () => ({ sentinelRootNodes: [{ host: 'a', port: NaN }], name: 'main' }),
    'sentinelRootNodes[0].port NaN, which is not a port.',
  ],
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
  ['no nodes of a Cluster', () => ({ rootNodes: [] }), 'rootNodes that is not a list of servers. Is the variable'],
  [
    'a node without an address',
    () => ({ rootNodes: [{ url: 'redis://a' }, { socket: { port: 1 } }] }),
    'rootNodes with a server that has no url and no host, so node-redis would connect to localhost.',
  ],
  [
    'Sentinels without the name of the master',
    () => ({ sentinelRootNodes: [{ host: 'a', port: 1 }] }),
    'sentinelRootNodes without the name of the master. Is the variable',
  ],
  [
    'options of BullMQ',
    () => ({ connection: { host: 'a' } }),
    '"connection", which is not an option of ioredis. Give its',
  ],
  [
    'options of a Cluster',
    () => ({ redisOptions: {} }),
    '"redisOptions", which is not an option of ioredis. A Cluster',
  ],
  ['a swapped letter', () => ({ hots: 'prod' }), '"hots", which is not an option of ioredis. Did you mean host?'],
  ['another case', () => ({ Host: 'prod' }), '"Host", which is not an option of ioredis. Did you mean host?'],
  [
    'a missing letter',
    () => ({ host: 'a', pasword: 'hunter2' }),
    '"pasword", which is not an option of ioredis. Did you',
  ],
  ['another word', () => ({ hostname: 'prod' }), '"hostname", which is not an option of ioredis. Did you mean host?'],
  [
    'a name of which nobody knows what it means',
    () => ({ host: 'a', wildcards: true }),
    '"wildcards", which is not an option of ioredis. If a newer ioredis has it, give a function: () => new Redis({ … }).',
  ],
  [
    'no options',
    () => ({}),
    'no host, port, path or sentinels, so ioredis would connect to localhost:6379. Name the server',
  ],
  [
    'no server',
    () => ({ db: 3 }),
    'no host, port, path or sentinels, so ioredis would connect to localhost:6379. Name the',
  ],
  [
    'a variable that is not set',
    () => ({ host: undefined, port: 6379 }),
    'host undefined, so ioredis would connect to localhost. Is the variable that it comes from set?',
  ],
  [
    'a port whose variable is not set',
    () => ({ host: 'a', port: Number(undefined) }),
    'port NaN, which is not a port. Is',
  ],
  [
    'a port that is a word',
    () => ({ host: 'a', port: 'hunter2' }),
    'port a string, which is not a port. Is the variable',
  ],
  [
    'a variable that is empty',
    () => ({ host: '' }),
    'host "", so ioredis would connect to localhost. Is the variable that',
  ],
  ['a URL without a host', () => 'redis://', 'a URL without a host, so it would mean localhost'],
  ['a URL with nothing but a database', () => 'redis:///3', 'a URL without a host, so it would mean localhost'],
];

describe('a Redis source that a client would take for localhost', () => {
  it.each(MISTAKES)('a Redis is not taken for localhost when it is given as %s [G243]', async (_, source, got) => {
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
