import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import type { RedisServer } from '../support/redis-server.js';

/** The head of an answer to INFO or INFO server, in either protocol. */
const INFO = /[$=](\d+)\r\n(?:txt:)?# Server\r\n/;

interface Door {
  readonly url: string;
  readonly name: string;
}

/**
 * A door to a server.
 * @param change called with the answer of the server that was not yet let through; returns the part to let through, and
 * the rest
 */
async function doorTo(
  server: RedisServer,
  change: (pending: string) => [through: string, rest: string],
): Promise<Door> {
  const door = createServer((client) => {
    const behind = connect(server.port, '127.0.0.1');
    let pending = '';
    client.pipe(behind);
    behind.on('data', (bytes) => {
      const [through, rest] = change(pending + bytes.toString('latin1'));
      client.write(through, 'latin1');
      pending = rest;
    });
    client.on('error', () => {}).on('close', () => behind.destroy());
    behind.on('error', () => {}).on('close', () => client.destroy());
  });
  door.listen(0, '127.0.0.1');
  await once(door, 'listening');
  onTestFinished(() => void door.close());
  const name = `127.0.0.1:${(door.address() as AddressInfo).port}`;
  return { url: `redis://${name}`, name };
}

/** A door to a server whose clock is ahead by this many seconds: it changes the seconds in answers to TIME. */
export function skewedClock(server: RedisServer, seconds: number): Promise<Door> {
  const time = /(\*2\r\n\$10\r\n)(\d{10})(?=\r\n\$\d\r\n)/g;
  const later = (_all: string, head: string, at: string) => head + (Number(at) + seconds);
  return doorTo(server, (pending) => [pending.replace(time, later), '']);
}

/** A door to a server on which INFO returns this text: the text of a server that cannot run here. */
export function posingAs(info: string, server: RedisServer): Promise<Door> {
  const text = info.trim().replace(/\r?\n/g, '\r\n');
  return doorTo(server, (pending) => {
    let through = '';
    let rest = pending;
    for (let found = INFO.exec(rest); found; found = INFO.exec(rest)) {
      const to = found.index + found[0].indexOf('\r\n') + 2 + Number(found[1]) + 2;
      if (rest.length < to) return [through, rest];
      through += `${rest.slice(0, found.index)}$${text.length}\r\n${text}\r\n`;
      rest = rest.slice(to);
    }
    return [through + rest, ''];
  });
}
