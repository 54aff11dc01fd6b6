import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import type { RedisServer } from '../support/redis-server.js';

/** The head of an answer to INFO or INFO server, in either protocol. */
const INFO = /[$=](\d+)\r\n(?:txt:)?# Server\r\n/;

/** A door to a server on which INFO gives this text: that of a kind of server which cannot be run here. */
export async function posingAs(info: string, server: RedisServer): Promise<{ url: string; name: string }> {
  const text = info.trim().replace(/\r?\n/g, '\r\n');
  const door = createServer((client) => {
    const behind = connect(server.port, '127.0.0.1');
    let pending = '';
    client.pipe(behind);
    behind.on('data', (bytes) => {
      pending += bytes.toString('latin1');
      for (let found = INFO.exec(pending); found; found = INFO.exec(pending)) {
        const from = found.index + found[0].indexOf('\r\n') + 2;
        const to = from + Number(found[1]) + 2;
        if (pending.length < to) return;
        client.write(`${pending.slice(0, found.index)}$${text.length}\r\n${text}\r\n`, 'latin1');
        pending = pending.slice(to);
      }
      client.write(pending, 'latin1');
      pending = '';
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
