import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { SentinelGroup } from '../support/redis-sentinel.js';
import { until } from '../support/until.js';

it('a Sentinel that hangs is passed over for the next one, and left', async () => {
  const group = await SentinelGroup.start();
  onTestFinished(() => group.stop());
  const sockets = new Set<Socket>();
  const silent = createServer((socket) => {
    sockets.add(socket.resume().on('error', () => {}));
    socket.on('close', () => sockets.delete(socket));
  });
  await once(silent.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
  const { port } = silent.address() as AddressInfo;
  const sentinels = [{ host: '127.0.0.1', port }, ...group.options.sentinels!];
  const locks = await openLocks({
    redis: { ...group.options, sentinels },
    connectTimeoutMs: 50_000,
    commandTimeoutMs: 20_000,
  });
  expect(await (await locks.acquire('x')).release()).toBe(true);
  await until(() => sockets.size === 0, { what: 'its connection is closed' });
});
