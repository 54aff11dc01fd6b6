import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import type { RedisServer } from '../support/redis-server.js';

/** A door to a server whose clock is ahead by so many seconds: the seconds in its answers to TIME are. */
export async function skewedClock(server: RedisServer, seconds: number): Promise<string> {
  const door = createServer((client) => {
    const behind = connect(server.port, '127.0.0.1');
    client.pipe(behind);
    behind.on('data', (bytes) => {
      const text = bytes.toString('latin1');
      const later = text.replace(
        /(\*2\r\n\$10\r\n)(\d{10})(?=\r\n\$\d\r\n)/g,
        (_all, head: string, time: string) => head + (Number(time) + seconds),
      );
      client.write(later, 'latin1');
    });
    client.on('error', () => {}).on('close', () => behind.destroy());
    behind.on('error', () => {}).on('close', () => client.destroy());
  });
  door.listen(0, '127.0.0.1');
  await once(door, 'listening');
  onTestFinished(() => void door.close());
  return `redis://127.0.0.1:${(door.address() as AddressInfo).port}`;
}
