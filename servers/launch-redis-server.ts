import { spawn } from 'node:child_process';
import { provideRedisServer } from './find-redis-server.js';
import { launchServer, type LaunchedServer } from './launch-server.js';

export interface LaunchOptions {
  /** Where it runs and keeps its files. */
  readonly dir: string;
  /** Default: any free one. */
  readonly port?: number;
  /** Further settings, such as `['--appendonly', 'yes']`; they override the defaults: no persistence. */
  readonly args?: readonly string[];
}

/**
 * Starts a redis-server on 127.0.0.1, which dies with this process however this process ends.
 * @returns when it accepts connections
 */
export async function launchRedisServer({ dir, port, args = [] }: LaunchOptions): Promise<LaunchedServer> {
  const { path, env } = await provideRedisServer();
  const settings = ['--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', dir, ...args];
  const program = {
    name: 'redis-server',
    readyText: /Ready to accept connections/,
    start: (on: number) => spawn(path, ['--port', String(on), ...settings], { env, stdio: ['ignore', 'pipe', 'pipe'] }),
  };
  return launchServer(program, port);
}
