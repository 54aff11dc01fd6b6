import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { candidatePort } from '../../servers/candidate-port.js';
import { provideRedisServer } from '../../servers/find-redis-server.js';
import { killWithParent } from '../../servers/kill-with-parent.js';
import { killProcess } from './kill-process.js';

export interface LaunchedSentinel {
  readonly port: number;
  /** Like kill -9. */
  stop(): Promise<void>;
}

export interface SentinelSettings {
  readonly quorum: number;
  /** How long a primary has to be silent. */
  readonly downAfterMs: number;
}

/**
 * Starts a Sentinel process that watches a primary.
 * @returns when it does
 */
export async function launchSentinel(
  group: string,
  primary: { readonly port: number },
  { quorum, downAfterMs }: SentinelSettings,
): Promise<LaunchedSentinel> {
  const binary = await provideRedisServer();
  const dir = await mkdtemp(join(tmpdir(), 'redis-sentinel-'));
  for (;;) {
    const port = await candidatePort();
    const config = join(dir, 'sentinel.conf');
    await writeFile(
      config,
      [
        `port ${port}`,
        'bind 127.0.0.1',
        `dir ${dir}`,
        `sentinel monitor ${group} 127.0.0.1 ${primary.port} ${quorum}`,
        `sentinel down-after-milliseconds ${group} ${downAfterMs}`,
        // How long it leaves replicas alone that follow through a proxy.
        `sentinel failover-timeout ${group} 60000`,
        '',
      ].join('\n'),
    );
    const child = spawn(binary.path, [config, '--sentinel'], { env: binary.env, stdio: ['ignore', 'pipe', 'pipe'] });
    killWithParent(child);
    const output = await firstWords(child);
    if (output.includes('+monitor')) return { port, stop: () => stop(child, dir) };
    if (output.includes('Address already in use')) continue;
    await rm(dir, { recursive: true, force: true });
    throw new Error(`redis-server --sentinel ended before it was ready, it printed:\n${output}`);
  }
}

async function stop(child: ChildProcess, dir: string): Promise<void> {
  await killProcess(child);
  await rm(dir, { recursive: true, force: true });
}

/** Its output until it watches the primary, or ends. */
function firstWords(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = '';
    const read = (text: string): void => {
      output += text;
      if (!output.includes('+monitor')) return;
      child.stdout!.off('data', read).resume();
      resolve(output);
    };
    child.stdout!.setEncoding('utf8').on('data', read);
    child.stderr!.setEncoding('utf8').on('data', read);
    child.once('error', reject);
    child.once('close', () => resolve(output));
  });
}
