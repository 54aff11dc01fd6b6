import type { NodeRedisOptions, RedisOptions } from '../stores/redis/client/source.js';

/** Translates options of ioredis into options of node-redis. */
export function optionsOfNodeRedis(options: RedisOptions): NodeRedisOptions {
  const { sentinels, name, sentinelUsername, sentinelPassword, sentinelTLS, host, port, path, db } = options;
  if (!sentinels) {
    const { socket, ...login } = accessOf(options);
    return {
      ...login,
      database: db ?? 0,
      socket: path === undefined ? { ...socket, host, port } : { path },
    } as NodeRedisOptions;
  }
  return {
    name,
    sentinelRootNodes: sentinels,
    nodeClientOptions: accessOf(options),
    sentinelClientOptions: accessOf({ username: sentinelUsername, password: sentinelPassword, tls: sentinelTLS }),
  } as NodeRedisOptions;
}

/** @param nodes in options of ioredis; the login and TLS options of the first node are used for all */
export function clusterOfNodeRedis(nodes: readonly RedisOptions[]): NodeRedisOptions {
  const rootNodes = nodes.map(({ host, port }) => ({ socket: { host, port } }));
  return { rootNodes, defaults: accessOf(nodes[0]!) };
}

function accessOf({ username, password, tls, family }: Partial<RedisOptions>) {
  return { username, password, socket: { ...(family && { family }), ...(tls && { ...tls, tls: true as const }) } };
}
