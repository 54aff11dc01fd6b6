import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { Cluster, type RedisOptions } from 'ioredis';
import { expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';

const PASSWORD = 'p@ss w0rd/ü';
const USERNAME = 'billing-app';
const INFO = 'redis_version:7.0.15\r\nrole:master\r\n';

/** A server that repeats the login in its answers, to AUTH or to everything later. */
async function echoing(when: 'at the login' | 'later'): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    let login = '';
    socket
      .on('error', () => {})
      .on('data', (data) => {
        // The client sends each command in one piece here.
        for (const command of data
          .toString()
          .split(/^\*\d+\r\n/m)
          .slice(1)) {
          const [name = '', ...args] = command.split('\r\n').filter((line, index) => index % 2 === 1 && line !== '');
          const given = /^auth$/i.test(name) ? args : args.slice(args.indexOf('AUTH') + 1); // HELLO 3 AUTH <user name> <password>
          const logsIn = given === args || (/^hello$/i.test(name) && args.includes('AUTH'));
          if (logsIn) login = `${given.join(' and ')} or ${given.map(encodeURIComponent).join(' and ')}`;
          if (logsIn && when === 'at the login') socket.write(`-WRONGPASS the login ${login} is none\r\n`);
          else if (/^info$/i.test(name)) socket.write(`$${INFO.length}\r\n${INFO}\r\n`);
          else if (/^(auth|client|select|hello|quit)$/i.test(name)) socket.write('+OK\r\n');
          else socket.write(`-ERR not for the login ${login}\r\n`);
        }
      });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const LOGIN: RedisOptions = { username: USERNAME, password: PASSWORD, protocol: 2 };
const encodedLogin = `${USERNAME}:${encodeURIComponent(PASSWORD)}`;

it.each([
  ['options', 'at the login', (port: number) => ({ host: '127.0.0.1', port, ...LOGIN })],
  ['options', 'later', (port: number) => ({ host: '127.0.0.1', port, ...LOGIN })],
  ['a URL', 'at the login', (port: number) => `redis://${encodedLogin}@127.0.0.1:${port}`],
  ['a URL', 'later', (port: number) => `redis://${encodedLogin}@127.0.0.1:${port}`],
  [
    'a Cluster',
    'at the login',
    (port: number) => () => new Cluster([{ host: '127.0.0.1', port }], { redisOptions: LOGIN }),
  ],
] as const)(
  'no error, event or report repeats the password or the user name of %s that a server repeats %s [G535]',
  async (_what, when, sourceOf) => {
    const locks = await openLocks({ redis: sourceOf(await echoing(when)), lazyConnect: true });
    const told: unknown[] = [];
    locks.events$.subscribe((event) => told.push(event));
    const error = (await locks.acquire('key', { waitMs: 100 }).catch((reason: unknown) => reason)) as Error;
    told.push(error, String(error), await locks.diagnose(), await locks.ping());
    const text = told.map((each) =>
      each instanceof Error ? each.message + JSON.stringify(each) : JSON.stringify(each),
    );
    expect(text.join()).toContain('login ***');
    for (const secret of [PASSWORD, encodeURIComponent(PASSWORD), USERNAME]) expect(text.join()).not.toContain(secret);
  },
);
