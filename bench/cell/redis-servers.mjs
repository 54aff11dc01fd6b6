import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { connect } from '../contestants/clients.mjs';

/** Empty redis-servers of this cell. They die with its process group. */
export function startRedisServers(count) {
  return Promise.all(Array.from({ length: count }, () => startRedisServer()));
}

/**
 * @param settings further arguments, made from the port of the server
 * @param samePort of a server that is started again
 */
export async function startRedisServer(settings = () => [], samePort) {
  const port = samePort ?? (await freePort());
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', ...settings(port)];
  // The server of `provideRedisServer`. With the C locale: Redis refuses to start under one that is not installed.
  const env = { ...process.env, LC_ALL: 'C' };
  const child = spawn(process.env.REDIS_SERVER, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const failed = Promise.race([once(child, 'error'), once(child, 'exit')]).then(([reason]) => {
    throw new Error(`redis-server cannot be started: ${reason?.message ?? `it ended with ${reason}`}.`);
  });
  await Promise.race([once(child.stdout, 'data'), failed]);
  child.stdout.resume();
  const control = await Promise.race([connect(port), failed]);
  failed.catch(() => {});
  const isOurs = (await control.info('server')).includes(`process_id:${child.pid}\r`);
  if (!isOurs) throw new Error(`another redis-server answers on port ${port}: run the cell again.`);
  return {
    port,
    control,
    stop: () => child.kill('SIGSTOP'),
    go: () => child.kill('SIGCONT'),
    kill() {
      control.disconnect();
      child.kill('SIGKILL');
    },
    hasEnded: once(child, 'exit'),
  };
}

/**
 * Below the range of outgoing connections: so a client that keeps reconnecting to a dead server can neither take its
 * port nor connect to itself. The bus of a Cluster has a port that is 10 000 higher.
 */
async function freePort() {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 10_000);
    const server = createServer();
    const isFree = await new Promise((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
}

/** CPU time that a server has used, in microseconds. */
export async function redisCpuUs(control) {
  const info = await control.info('cpu');
  const seconds = (name) => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)[1]);
  return (seconds('used_cpu_user') + seconds('used_cpu_sys')) * 1e6;
}

/** Calls of commands since `CONFIG RESETSTAT`, including commands inside scripts, without the commands of the bench. */
export async function commandCalls(control) {
  const info = await control.info('commandstats');
  let calls = 0;
  for (const [, name, count] of info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) {
    if (!/^(info|config\|resetstat|zcount)$/.test(name)) calls += Number(count);
  }
  return calls;
}

/** Calls of scripts since `CONFIG RESETSTAT`: the number of commands that the library has sent for its locks. */
export async function scriptCalls(control) {
  const info = await control.info('commandstats');
  return Number(/^cmdstat_evalsha:calls=(\d+)/m.exec(info)?.[1] ?? 0);
}
