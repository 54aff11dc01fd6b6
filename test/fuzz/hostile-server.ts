import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import fc from 'fast-check';

/** The reaction of the server to a script. */
export type Reaction = { bytes: string } | 'nothing' | 'hang up';

/**
 * A TCP server that reads the commands of a client, and answers its scripts as requested. Everything else gets `+OK`.
 */
export class HostileServer {
  #reaction: Reaction = 'nothing';
  readonly #sockets = new Set<Socket>();

  private constructor(private readonly server: Server) {}

  static async start(): Promise<HostileServer> {
    const server = createServer();
    const hostile = new HostileServer(server);
    server.on('connection', (socket) => hostile.#serve(socket));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return hostile;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  /** From now on, and on new connections: requests on the old ones are forgotten. */
  async react(reaction: Reaction): Promise<void> {
    this.#reaction = reaction;
    if (this.#sockets.size === 0) return;
    const connected = once(this.server, 'connection');
    for (const socket of this.#sockets) socket.destroy();
    await connected;
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.server.close();
    await once(this.server, 'close');
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket)).on('error', () => {});
    socket.on('data', (data) => {
      // The client sends each command in one piece here: `*<count>\r\n$<length>\r\n<NAME>\r\n...`
      for (const [, name] of data.toString('latin1').matchAll(/\*\d+\r\n\$\d+\r\n([a-z]+)\r\n/gi)) {
        if (!/^eval/i.test(name!)) socket.write('+OK\r\n');
        else if (this.#reaction === 'hang up') socket.destroy();
        else if (this.#reaction !== 'nothing') socket.write(this.#reaction.bytes, 'latin1');
      }
    });
  }
}

const text = fc.oneof(
  fc.string(),
  fc.constantFrom('', '__proto__', 'constructor', '1', '-1', '1e999', 'NaN', 'OK', '0x10'),
  fc.constantFrom('granted', 'refused', 'failed', 'at', 'wiped'),
);
const line = text.map((value) => value.replace(/[\r\n]/g, ' '));

/** Well-formed RESP of any type, nested, with names that objects have. */
const wellFormed = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.oneof(fc.integer(), fc.constantFrom(0, -1, 1, 2 ** 53, 1e15)).map((value) => `:${value}\r\n`),
    text.map((value) => `$${Buffer.byteLength(value, 'latin1')}\r\n${value}\r\n`),
    line.map((value) => `+${value}\r\n`),
    line.map((value) => `-${value}\r\n`),
    fc.constantFrom('$-1\r\n', '*-1\r\n', '*0\r\n', '-NOSCRIPT No matching script\r\n', '-OOM command not allowed\r\n'),
    fc.array(tie('value'), { maxLength: 4 }).map((values) => `*${values.length}\r\n${values.join('')}`),
  ),
}));

const token = fc.integer({ min: 1, max: 9e15 }).map((value) => String(value).padStart(16, '0'));
const value = fc
  .tuple(line, fc.option(token), fc.constantFrom('', '+'))
  .map(([owner, of, mark]) => (of === null ? owner : `${owner}@${of}${mark}`));

/** Another owner holds the lock. */
export function refusal(pttl: number, text: string): string {
  return `*3\r\n+refused\r\n:${pttl}\r\n+${text}\r\n`;
}

/** To a waiter: one token, and nobody else waits. */
export function grantOfTurn(text: string): string {
  return `*6\r\n+granted\r\n:0\r\n:1700000000000000\r\n$16\r\n${text}\r\n$16\r\n${text}\r\n:1700000000000000\r\n`;
}

/** To a waiter: another owner holds the lock. */
export function refusalOfTurn(pttl: number, text: string): string {
  return `*7\r\n+refused\r\n:0\r\n:1700000000000000\r\n:${pttl}\r\n+${text}\r\n:0\r\n:0\r\n`;
}

/**
 * As the library expects them: a token, a token with the time of the node, or the holder of the lock and its remaining
 * time.
 */
const asExpected = fc.oneof(
  fc.integer({ min: 1 }).map((number) => `:${number}\r\n`),
  token.map((text) => `$16\r\n${text}\r\n`),
  token.map((text) => grantOfTurn(text)),
  fc.tuple(fc.integer({ min: 0, max: 50 }), value).map(([pttl, text]) => refusalOfTurn(pttl, text)),
  fc.tuple(token, fc.nat()).map(([text, us]) => `*3\r\n$2\r\nat\r\n$16\r\n${text}\r\n:${us}\r\n`),
  fc.tuple(fc.integer({ min: 0, max: 50 }), value).map(([pttl, text]) => refusal(pttl, text)),
);

/** ioredis throws on an unrequested null where no caller can catch it, unless it is one of several answers. */
const HAS_NULL = /[$*]-|_/;

/** Truncated, with changed bytes, or not RESP at all. */
const broken = fc
  .oneof(
    fc.string(),
    fc.tuple(wellFormed.value, fc.nat(20)).map(([bytes, length]) => bytes.slice(0, length)),
    fc
      .tuple(wellFormed.value, fc.string({ maxLength: 3 }), fc.nat(10))
      .map(([bytes, junk, at]) => bytes.slice(0, at) + junk + bytes.slice(at)),
    fc.constantFrom(
      '$999999999\r\n',
      '*99999999\r\n',
      ':abc\r\n',
      '*1\r\n*1\r\n*1\r\n',
      '\0\0\0',
      'HTTP/1.1 400\r\n\r\n',
    ),
  )
  .filter((bytes) => !HAS_NULL.test(bytes));

export const reaction: fc.Arbitrary<Reaction> = fc.oneof(
  { weight: 2, arbitrary: asExpected.map((bytes) => ({ bytes })) },
  { weight: 4, arbitrary: wellFormed.value.map((bytes) => ({ bytes })) },
  { weight: 3, arbitrary: broken.map((bytes) => ({ bytes })) },
  { weight: 1, arbitrary: fc.constantFrom('nothing' as const, 'hang up' as const) },
);
