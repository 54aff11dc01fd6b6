import { setTimeout } from 'node:timers/promises';
import { inspect } from 'node:util';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import { LockOptionsError, type RedisLockModuleOptions } from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';

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

const NO_ADDRESS =
  'options without the address of a server, so the client would connect to localhost. Give host, path, url,';
const DIFFER = 'options whose url contradicts socket or database. Give one of them, and rediss:// for TLS.';
const SEVERAL = 'options with several kinds of addresses. Give one of them.';
const KEY_PREFIX = 'a keyPrefix in options of nodes, where node-redis ignores it. Give it next to rootNodes or';

/** Options and URLs, with their messages. */
const MISTAKES_IN_OPTIONS: [source: unknown, got: string][] = [
  ['https://hunter2.example', 'a Redis that is reached by HTTP. Locks need a connection'],
  [
    { url: 'https://example', token: 'hunter2' },
    'a Redis that is reached by HTTP. Locks need a connection on which the server can send messages: give the redis://',
  ],
  ['redis://', 'a URL without a host, so it would mean localhost'],
  ['redis:///3', 'a URL without a host, so it would mean localhost'],
  ['redis://u:a%zz@a', 'a URL whose user or password cannot be read'],
  [{ url: 'redis://u:a%ff@a' }, 'encoded: % as %25'],
  [{ url: 'hunter2:6379' }, 'a string of another form. Write redis://host:port'],
  [{ url: '/tmp/redis.sock' }, 'a url that is the path of a socket. Write socket: { path }.'],
  [{ url: 5 }, 'url a number. Is the variable that it comes from set?'],
  [{ rootNodes: [{ url: 'redis://a' }, { url: 'hunter2:6379' }] }, 'a string of another form. Write redis://host:port'],

  [{}, `${NO_ADDRESS} sentinels or rootNodes, even if you mean localhost. Is the variable that it comes from set?`],
  [{ db: 3 }, NO_ADDRESS],
  [{ port: 6380 }, NO_ADDRESS],
  [{ host: undefined, port: 6379 }, NO_ADDRESS],
  [{ host: '' }, NO_ADDRESS],
  [{ connection: { host: 'a' } }, NO_ADDRESS],
  [{ uri: 'redis://:hunter2@a' }, NO_ADDRESS],
  [{ hots: 'prod' }, NO_ADDRESS],
  [{ sentinels: [], name: 'main' }, NO_ADDRESS],
  [{ sentinels: [{ host: 'a' }, { port: 26_380 }], name: 'main' }, NO_ADDRESS],
  [{ url: undefined }, NO_ADDRESS],
  [{ socket: { port: 6380 } }, NO_ADDRESS],
  [{ socket: 'hunter2' }, NO_ADDRESS],
  [{ rootNodes: [] }, NO_ADDRESS],
  [{ rootNodes: 'hunter2' }, NO_ADDRESS],
  [{ rootNodes: [{ url: 'redis://a' }, { socket: { port: 1 } }] }, NO_ADDRESS],
  [{ rootNodes: [{ url: 'redis://a' }, null] }, NO_ADDRESS],
  [{ sentinelRootNodes: [{ port: 1 }], name: 'main' }, NO_ADDRESS],

  [{ path: 7600 }, 'path 7600, which is not the path of a socket. Is the variable that it comes from set?'],
  [{ host: 5 }, 'host 5, which is not the name of a host. Is the variable that it comes from set?'],
  [{ socket: { host: ['hunter2'] } }, 'host an object, which is not the name of a host. Is'],
  [{ host: 'redis://u:hunter2@a' }, 'host a string, which is not the name of a host. Is'],
  [{ host: 'a:6379' }, 'host a string, which is not the name of a host. Is'],
  [{ sentinels: [{ host: 5 }], name: 'main' }, 'host 5, which is not the name of a host. Is'],
  [{ sentinels: [{ host: 'a' }] }, 'sentinels without the name of the master. Is the variable'],
  [{ host: 'a', port: true }, 'port a boolean, which is not a port. Is the variable'],
  [{ host: 'a', port: Number(undefined) }, 'port NaN, which is not a port. Is'],
  [{ host: 'a', port: 'hunter2' }, 'port a string, which is not a port. Is the variable'],
  [{ socket: { host: 'a', port: NaN } }, 'port NaN, which is not a port. Is the variable'],
  [{ sentinelRootNodes: [{ host: 'a', port: NaN }], name: 'main' }, 'port NaN, which is not a port.'],
  [
    { sentinelRootNodes: [{ host: 'a', port: 1 }] },
    'sentinelRootNodes without the name of the master. Is the variable',
  ],

  [{ url: 'redis://:hunter2@a', socket: { host: 'b' } }, DIFFER],
  [{ url: 'redis://a', socket: { port: 6380 } }, DIFFER],
  [{ url: 'redis://a', socket: { path: '/tmp/redis.sock' } }, DIFFER],
  [{ url: 'redis://:hunter2@a?db=2', database: 3 }, DIFFER],
  [{ url: 'redis://:hunter2@a', socket: { tls: true } }, DIFFER],
  [{ url: 'rediss://:hunter2@a', socket: { tls: false } }, DIFFER],
  [{ rootNodes: [{ url: 'redis://:hunter2@a' }], defaults: { socket: { tls: true } } }, DIFFER],
  [{ url: 'redis://a', rootNodes: [{ url: 'redis://a' }] }, SEVERAL],
  [{ url: 'redis://a', host: 'b' }, SEVERAL],
  [{ host: 'a', path: '/tmp/redis.sock' }, SEVERAL],
  [{ socket: { host: 'a', path: '/tmp/redis.sock' } }, SEVERAL],
  [{ host: 'a', sentinels: [{ host: 'b' }], name: 'main' }, SEVERAL],
  [{ sentinels: [{ host: 'a' }], sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main' }, SEVERAL],
  [
    { sentinelRootNodes: [{ host: 'a', port: 1 }], name: 'main', nodeClientOptions: { keyPrefix: 'hunter2' } },
    KEY_PREFIX,
  ],
  [{ rootNodes: [{ url: 'redis://a' }], defaults: { keyPrefix: 'hunter2' } }, KEY_PREFIX],
  [{ rootNodes: [{ url: 'redis://a', keyPrefix: 'hunter2' }] }, KEY_PREFIX],
];

/** Other values that may be passed by mistake. */
const MISTAKES: [what: string, source: () => unknown, got: string][] = [
  [
    'a pool of node-redis',
    () => new Pool(),
    'a pool of node-redis, whose connections have no common order. Give a client',
  ],
  [
    'a client of another library',
    () => new OtherClient(),
    'a client of another package (OtherClient). Give a client of',
  ],
  ['a client of @upstash/redis', () => new UpstashClient(), 'a Redis that is reached by HTTP. Locks need a connection'],
  ['a pipeline', () => lazy().pipeline(), 'a pipeline of ioredis. Give its client'],
  [
    'a promise',
    () => Promise.resolve(lazy()),
    'a Promise. Give a function that returns it, () => promise, or await it',
  ],
  ['nodes of a Cluster', () => [{ host: 'a' }], 'an array. The nodes of a Cluster belong in a client'],
  ['a URL object', () => new URL('redis://:hunter2@a'), 'a URL object. Give its text: url.href.'],
  ['a class', () => Redis, 'a class. Give an object of it, new Redis(…), or its options.'],
  ['a map', () => new Map([['host', 'hunter2']]), NO_ADDRESS],
  ['an object whose options are getters', () => new Getters(), NO_ADDRESS],
  [
    'a client of redis 4',
    () => new ClientOf4(),
    'a client of redis 4. Give a client of ioredis 5.4 or later, or of redis 5.10',
  ],
  [
    'multi() of a client of node-redis',
    () => createClient({ url: 'redis://a' }).multi(),
    'the result of multi() or legacy() of a client of node-redis. Give the client itself.',
  ],
  [
    'legacy() of a client of node-redis',
    () => createClient({ url: 'redis://a' }).legacy(),
    'the result of multi() or legacy() of a client of node-redis. Give the client itself.',
  ],
];

const ALL: typeof MISTAKES = [
  ...MISTAKES,
  ...MISTAKES_IN_OPTIONS.map(([source, got]) => [inspect(source), () => source, got] as (typeof MISTAKES)[number]),
];

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

it.each([{ path: '/tmp/redis.sock', port: 0 }, { socket: { path: '/tmp/redis.sock', port: 0 } }])(
  'a port next to the path of a socket is ignored, as no client uses it: %j',
  async (redis) => {
    await openLocks({ redis, lazyConnect: true });
  },
);

it('a start with lazyConnect waits for the client of a source function for longer than connectTimeoutMs', async () => {
  const client = new Gate();
  const opening = openLocks({ redis: () => client.opened.then(lazy), connectTimeoutMs: 10, lazyConnect: true });
  await expect(Promise.race([opening, setTimeout(50, 'it waits')])).resolves.toBe('it waits');
  client.open();
  await opening;
});

it('a start fails with an explanation when the promise of a source function does not settle in time [G1075]', async () => {
  const client = lazy();
  let give!: (client: Redis) => void;
  const promise = new Promise<Redis>((resolve) => (give = resolve));
  const opening = openLocks({ redis: () => promise, connectTimeoutMs: 50 });
  await expect(opening).rejects.toThrow(
    'A function given as a Redis source has returned no client within 50 ms (connectTimeoutMs): its promise is still pending. ' +
      'Have it return a client that is not connected yet, or find out what it waits for.',
  );
  await expect(opening).rejects.toBeInstanceOf(LockOptionsError);
  give(client);
  await until(() => client.status === 'end', { what: 'the client that comes too late is closed' });
});

it.each<[what: string, made: () => unknown, got: string]>([
  ['nothing', () => undefined, 'nothing.'],
  ['a pool of node-redis', () => new Pool(), 'a pool of node-redis, whose connections have no common order.'],
  ['a client of redis 4', async () => new ClientOf4(), 'a client of redis 4. Give a client of ioredis'],
  ['a client of @upstash/redis', () => new UpstashClient(), 'a Redis that is reached by HTTP. Locks need a'],
  ['a client of another library', async () => new OtherClient(), 'a client of another package (OtherClient).'],
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
