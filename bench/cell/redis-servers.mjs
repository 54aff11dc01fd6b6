import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { connect } from '../contestants/clients.mjs';

/** Empty redis-servers of this cell. They die with its process group. */
export function startRedisServers(count) {
  return Promise.all(Array.from({ length: count }, () => startRedisServer()));
}

/** @param settings further arguments, made of the port of the server */
export async function startRedisServer(settings = () => []) {
  const port = await freePort();
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', ...settings(port)];
  // The server of `provideRedisServer`. With the C locale: Redis refuses to start under one that is not installed.
  const env = { ...process.env, LC_ALL: 'C' };
  const child = spawn(process.env.REDIS_SERVER, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const failed = once(child, 'error').then(([error]) => {
    throw new Error(`redis-server cannot be started: ${error.message}.`);
  });
  await Promise.race([once(child.stdout, 'data'), failed]);
  failed.catch(() => {});
  child.stdout.resume();
  const control = await connect(port);
  return {
    port,
    control,
    stop: () => child.kill('SIGSTOP'),
    kill() {
      control.disconnect();
      child.kill('SIGKILL');
    },
  };
}

async function freePort() {
  for (;;) {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address();
    server.close();
    await once(server, 'close');
    if (port <= 55_535) return port; // the bus of a Cluster has a port 10 000 higher
  }
}

/** CPU time that a server has used, in microseconds. */
export async function redisCpuUs(control) {
  const info = await control.info('cpu');
  const seconds = (name) => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)[1]);
  return (seconds('used_cpu_user') + seconds('used_cpu_sys')) * 1e6;
}

/** Calls of commands since `CONFIG RESETSTAT`, those inside of scripts included, those of the bench left out. */
export async function commandCalls(control) {
  const info = await control.info('commandstats');
  let calls = 0;
  for (const [, name, count] of info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) {
    if (!/^(info|config\|resetstat|zcount)$/.test(name)) calls += Number(count);
  }
  return calls;
}

/** Calls of scripts since `CONFIG RESETSTAT`: how many commands the library has sent for its locks. */
export async function scriptCalls(control) {
  const info = await control.info('commandstats');
  return Number(/^cmdstat_evalsha:calls=(\d+)/m.exec(info)?.[1] ?? 0);
}
