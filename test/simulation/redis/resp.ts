import { Fields, ReplyError, Status, type Reply } from './replies.js';

/** Reads the commands in the bytes of a client, which may come in pieces. */
export class CommandDecoder {
  #rest = '';

  /** @returns the commands that are complete */
  read(bytes: Buffer): string[][] {
    this.#rest += bytes.toString('latin1');
    const commands: string[][] = [];
    for (;;) {
      const command = this.#next();
      if (!command) return commands;
      commands.push(command);
    }
  }

  #next(): string[] | undefined {
    let at = 0;
    const line = (): number | undefined => {
      const end = this.#rest.indexOf('\r\n', at);
      if (end < 0) return undefined;
      const number = Number(this.#rest.slice(at + 1, end));
      at = end + 2;
      return number;
    };
    const count = line();
    if (count === undefined) return undefined;
    const args: string[] = [];
    while (args.length < count) {
      const length = line();
      if (length === undefined || at + length + 2 > this.#rest.length) return undefined;
      args.push(this.#rest.slice(at, at + length));
      at += length + 2;
    }
    this.#rest = this.#rest.slice(at);
    return args;
  }
}

/** An unrequested message, in RESP3. */
export function encodePush(message: readonly Reply[]): string {
  return encode(message).replace('*', '>');
}

/** @param resp the version of the protocol, which matters only for maps */
export function encode(reply: Reply, resp: 2 | 3 = 2): string {
  if (reply === null) return '$-1\r\n';
  if (typeof reply === 'number') return `:${Number.isSafeInteger(reply) ? reply : BigInt(reply)}\r\n`;
  if (typeof reply === 'string') return `$${reply.length}\r\n${reply}\r\n`;
  if (reply instanceof Status) return `+${reply.text}\r\n`;
  if (reply instanceof ReplyError) return `-${reply.text}\r\n`;
  const all = (list: readonly Reply[]) => list.map((each) => encode(each, resp)).join('');
  if (Array.isArray(reply)) return `*${reply.length}\r\n${all(reply)}`;
  const { list } = reply as Fields;
  return resp === 3 ? `%${list.length / 2}\r\n${all(list)}` : encode(list);
}
