import { spawn, type ChildProcess } from 'node:child_process';
import { candidatePort } from './candidate-port.js';
import { provideRedisServer } from './find-redis-server.js';
import { killWithParent } from './kill-with-parent.js';

export interface LaunchOptions {
  /** Where it runs and keeps its files. */
  readonly dir: string;
  /** Default: any free one. */
  readonly port?: number;
  /** Further settings, such as `['--appendonly', 'yes']`; they override the defaults: no persistence. */
  readonly args?: readonly string[];
}

export interface LaunchedServer {
  readonly process: ChildProcess;
  readonly port: number;
}

/**
 * Starts a redis-server on 127.0.0.1, which dies with this process however this process ends.
 * @returns when it accepts connections
 */
export async function launchRedisServer({ dir, port, args = [] }: LaunchOptions): Promise<LaunchedServer> {
  const { path, env } = await provideRedisServer();
  const settings = ['--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', dir, ...args];
  for (;;) {
    const candidate = port ?? (await candidatePort());
    const child = spawn(path, ['--port', String(candidate), ...settings], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    killWithParent(child);
    try {
      await ready(child);
      return { process: child, port: candidate };
    } catch (error) {
      if (port === undefined && String(error).includes('Address already in use')) continue;
      throw error;
    }
  }
}

function ready(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let output = '';
    const read = (text: string): void => {
      output += text;
      if (!output.includes('Ready to accept connections')) return;
      child.stdout!.off('data', read).resume();
      resolve();
    };
    child.stdout!.setEncoding('utf8').on('data', read);
    child.stderr!.setEncoding('utf8').on('data', read);
    child.once('error', reject);
    child.once('close', () => reject(new Error(`redis-server ended before it was ready, it printed:\n${output}`)));
  });
}
