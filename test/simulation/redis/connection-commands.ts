import { USED_MEMORY } from './redis-data.js';
import { OK, ReplyError, Status, type Reply } from './replies.js';
import type { Connection, SimulatedServer } from './simulated-server.js';

export type ConnectionCommand = (
  server: SimulatedServer,
  args: readonly string[],
  connection: Connection,
) => Reply | undefined;

/** The commands by which clients set up a connection, and tests examine a server. */
export const CONNECTION_COMMANDS: Readonly<Record<string, ConnectionCommand>> = {
  HELLO(_server, [version = '2', ...more], connection) {
    if (version !== '2' && version !== '3') return new ReplyError('NOPROTO unsupported protocol version');
    connection.speaksResp3 = version === '3';
    const at = more.findIndex((arg) => /^setname$/i.test(arg));
    if (at >= 0) connection.name = more[at + 1]!;
    return ['server', 'redis', 'proto', Number(version)];
  },
  PING: (_server, [text]) => text ?? new Status('PONG'),
  SELECT: (_server, [database]) => (database === '0' ? OK : new ReplyError('ERR DB index is out of range')), // it has but one
  CLUSTER: () => new ReplyError('ERR This instance has cluster support disabled'),
  CLIENT: client,
  INFO: (server, sections) => infoOf(server, sections.map((section) => section.toLowerCase())), // prettier-ignore
  SAVE(server) {
    server.save();
    return OK;
  },
  ROLE: ({ replication }) => replication.role,
  REPLICAOF: replicaOf,
  REPLCONF({ replication }, [kind, value], connection) {
    if (kind === 'ACK') {
      replication.onAcknowledged(connection, Number(value));
      return undefined;
    }
    if (kind === 'listening-port') connection.listeningPort = Number(value);
    return OK;
  },
  PSYNC: ({ replication }, [id, from], connection) => replication.serve(connection, id!, Number(from)),
  WAIT({ replication }, [count, timeout], connection) {
    if (!/^-?\d+$/.test(count ?? '')) return new ReplyError('ERR value is not an integer or out of range');
    if (!/^-?\d+$/.test(timeout ?? '')) return new ReplyError('ERR timeout is not an integer or out of range');
    if (Number(timeout) < 0) return new ReplyError('ERR timeout is negative');
    return replication.wait(connection, Number(count), Number(timeout));
  },
  QUIT(_server, _args, connection) {
    connection.send(OK);
    connection.close('end');
    return undefined;
  },
  UNSUBSCRIBE: (server, names, connection) => unsubscribe('unsubscribe', server.data.channels, names, connection),
  SUNSUBSCRIBE: (server, names, connection) =>
    unsubscribe('sunsubscribe', server.data.shardChannels, names, connection),
};

function replicaOf(server: SimulatedServer, [host, port]: readonly string[]): Reply {
  if (/^no$/i.test(host!) && /^one$/i.test(port!)) server.promote();
  else if (server.replication.primaryPort === Number(port))
    return new Status('OK Already connected to specified master');
  else server.follow({ port: Number(port) });
  return OK;
}

function client(server: SimulatedServer, args: readonly string[], connection: Connection): Reply {
  const [kind = '', ...rest] = args;
  switch (kind.toUpperCase()) {
    case 'ID':
      return connection.id;
    case 'SETNAME':
      if (!/^[!-~]*$/.test(rest[0]!))
        return new ReplyError('ERR Client names cannot contain spaces, newlines or special characters.');
      connection.name = rest[0]!;
      return OK;
    case 'SETINFO':
      return OK;
    case 'INFO':
      return lineOf(connection);
    case 'LIST':
      return [...server.connections].filter(filterOf(rest)).map(lineOf).join('');
    case 'KILL': {
      const skipsItself = !/^no$/i.test(rest[rest.findIndex((arg) => /^skipme$/i.test(arg)) + 1] ?? '');
      const doomed = [...server.connections].filter(
        (each) => filterOf(rest)(each) && !(skipsItself && each === connection),
      );
      for (const each of doomed) each.close('end');
      return doomed.length;
    }
    default:
      return new ReplyError(`ERR unknown subcommand '${kind}'`);
  }
}

/** The fields of `CLIENT LIST`. */
function lineOf(connection: Connection): string {
  const { id, name, isBlocked, subscriptions, shardSubscriptions, command, listeningPort } = connection;
  const isSubscribed = subscriptions + shardSubscriptions > 0;
  const flags = (isBlocked ? 'b' : '') + (isSubscribed ? 'P' : '') + (listeningPort > 0 ? 'S' : '') || 'N';
  const subscribed = `sub=${subscriptions} psub=0 ssub=${shardSubscriptions}`;
  return `id=${id} addr=127.0.0.1:0 name=${name} flags=${flags} ${subscribed} cmd=${command} user=default\n`;
}

/** The filters `TYPE pubsub` and `ID 1`. */
function filterOf([by = '', value = '']: readonly string[]): (connection: Connection) => boolean {
  if (/^type$/i.test(by)) return (each) => typeOf(each) === value.toLowerCase().replace('slave', 'replica');
  if (/^id$/i.test(by)) return ({ id }) => id === Number(value);
  return () => true;
}

function typeOf(connection: Connection): 'normal' | 'pubsub' | 'replica' {
  if (connection.listeningPort > 0) return 'replica';
  return connection.subscriptions + connection.shardSubscriptions > 0 ? 'pubsub' : 'normal';
}

function infoOf(
  { data: { settings }, port, runId, uptimeS, isLoading, calls, replication, cluster }: SimulatedServer,
  sections: readonly string[],
): string {
  const all: Readonly<Record<string, () => string>> = {
    server: () =>
      `redis_version:7.4.0\r\nredis_mode:${cluster ? 'cluster' : 'standalone'}\r\nprocess_id:1\r\nrun_id:${runId}\r\ntcp_port:${port}\r\nuptime_in_seconds:${uptimeS}\r\n`,
    replication: () => replication.info(),
    cluster: () => `cluster_enabled:${cluster ? 1 : 0}\r\n`,
    persistence: () =>
      `loading:${isLoading ? 1 : 0}\r\naof_enabled:${settings.get('appendonly') === 'yes' ? 1 : 0}\r\n`,
    memory: () =>
      `used_memory:${USED_MEMORY}\r\nmaxmemory:${settings.get('maxmemory')}\r\n` +
      `maxmemory_policy:${settings.get('maxmemory-policy')}\r\n`,
    commandstats: () => [...calls].map(([name, count]) => `cmdstat_${name}:calls=${count},usec=1\r\n`).join(''),
  };
  const chosen = sections.length > 0 ? sections : ['server', 'replication', 'persistence', 'memory', 'cluster'];
  return chosen.map((section) => `# ${section}\r\n${all[section]?.() ?? ''}`).join('\r\n');
}

function unsubscribe(
  kind: string,
  channels: Map<string, Set<{ push: unknown }>>,
  names: readonly string[],
  connection: Connection,
): undefined {
  const count = kind === 'sunsubscribe' ? 'shardSubscriptions' : 'subscriptions';
  for (const name of names) {
    if (channels.get(name)?.delete(connection)) connection[count]--;
    connection.tell([kind, name, connection[count]]);
  }
  return undefined;
}
