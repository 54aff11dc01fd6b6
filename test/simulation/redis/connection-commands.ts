import type { RedisData } from './redis-data.js';
import { OK, ReplyError, Status, type Reply } from './replies.js';

/** A connection, as its commands know it. */
export interface ConnectionOfCommands {
  readonly id: number;
  name: string;
  subscriptions: number;
  send(reply: Reply): void;
  push(message: readonly [string, string, string | number]): void;
  close(how: 'end' | 'reset'): void;
}

/** A server, as the commands of connections know it. */
export interface ServerOfCommands {
  readonly data: RedisData;
  readonly runId: string;
  readonly uptimeS: number;
  readonly isLoading: boolean;
  readonly calls: Map<string, number>;
  readonly settings: Map<string, string>;
  readonly connections: ReadonlySet<ConnectionOfCommands>;
}

type ConnectionCommand = (
  server: ServerOfCommands,
  args: readonly string[],
  connection: ConnectionOfCommands,
) => Reply | undefined;

/** What clients send to set up a connection, and tests to look at a server. */
export const CONNECTION_COMMANDS: Readonly<Record<string, ConnectionCommand>> = {
  HELLO: () => new ReplyError('NOPROTO unsupported protocol version'), // so that clients speak RESP2
  PING: (_server, [text]) => text ?? new Status('PONG'),
  ECHO: (_server, [text]) => text!,
  SELECT: () => OK,
  CLIENT: client,
  CONFIG(server, [kind, name, value]) {
    switch (kind!.toUpperCase()) {
      case 'GET': {
        const isMeant = new RegExp(`^${name!.replaceAll('*', '.*')}$`);
        return [...server.settings].filter(([setting]) => isMeant.test(setting)).flat();
      }
      case 'SET':
        server.settings.set(name!.toLowerCase(), value!);
        return OK;
      case 'RESETSTAT':
        server.calls.clear();
        return OK;
      default:
        return new ReplyError(`ERR unknown subcommand '${kind}'`);
    }
  },
  INFO: (server, sections) => infoOf(server, sections.map((section) => section.toLowerCase())), // prettier-ignore
  ROLE: () => ['master', 0, []],
  QUIT(_server, _args, connection) {
    connection.send(OK);
    connection.close('end');
    return undefined;
  },
  UNSUBSCRIBE: (server, names, connection) => unsubscribe('unsubscribe', server.data.channels, names, connection),
  SUNSUBSCRIBE: (server, names, connection) =>
    unsubscribe('sunsubscribe', server.data.shardChannels, names, connection),
};

function client(server: ServerOfCommands, args: readonly string[], connection: ConnectionOfCommands): Reply {
  const [kind = '', ...rest] = args;
  switch (kind.toUpperCase()) {
    case 'ID':
      return connection.id;
    case 'SETNAME':
      connection.name = rest[0]!;
      return OK;
    case 'SETINFO':
      return OK;
    case 'LIST': {
      const chosen = [...server.connections].filter(filterOf(rest));
      return chosen.map((each) => `id=${each.id} name=${each.name} sub=${each.subscriptions} cmd=x\n`).join('');
    }
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

/** Of `TYPE pubsub` and `ID 1`. */
function filterOf([by = '', value = '']: readonly string[]): (connection: ConnectionOfCommands) => boolean {
  if (/^type$/i.test(by)) return ({ subscriptions }) => /^pubsub$/i.test(value) === subscriptions > 0;
  if (/^id$/i.test(by)) return ({ id }) => id === Number(value);
  return () => true;
}

function infoOf({ runId, uptimeS, isLoading, calls, settings }: ServerOfCommands, sections: readonly string[]): string {
  const all: Readonly<Record<string, () => string>> = {
    server: () =>
      `redis_version:7.4.0\r\nredis_mode:standalone\r\nprocess_id:1\r\nrun_id:${runId}\r\nuptime_in_seconds:${uptimeS}\r\n`,
    replication: () =>
      `role:master\r\nconnected_slaves:0\r\nmaster_replid:${runId}\r\nmaster_replid2:${'0'.repeat(40)}\r\n`,
    persistence: () =>
      `loading:${isLoading ? 1 : 0}\r\naof_enabled:${settings.get('appendonly') === 'yes' ? 1 : 0}\r\n`,
    memory: () => 'used_memory:1000000\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n',
    commandstats: () => [...calls].map(([name, count]) => `cmdstat_${name}:calls=${count},usec=1\r\n`).join(''),
  };
  const chosen = sections.length > 0 ? sections : ['server', 'replication', 'persistence', 'memory'];
  return chosen.map((section) => `# ${section}\r\n${all[section]?.() ?? ''}`).join('\r\n');
}

function unsubscribe(
  kind: string,
  channels: Map<string, Set<{ push: unknown }>>,
  names: readonly string[],
  connection: ConnectionOfCommands,
): undefined {
  for (const name of names) {
    if (channels.get(name)?.delete(connection)) connection.subscriptions--;
    connection.send([kind, name, connection.subscriptions]);
  }
  return undefined;
}
