import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Figures } from '../../sample-app/demonstration/demonstration.js';
import { killWithParent } from '../../servers/kill-with-parent.js';
import { until } from '../support/until.js';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BARE_MACHINE = `${ROOT}node_modules/.cache/nest-redis-lock-sample-${process.pid}`;
const NEST = `${ROOT}node_modules/@nestjs/cli/bin/nest.js`;

/** Compiles the sample app as `npm start` does. */
export async function buildSampleApp(): Promise<void> {
  await promisify(execFile)(process.execPath, [NEST, 'build'], { cwd: ROOT });
}

export function removeBareMachine(): Promise<void> {
  return rm(BARE_MACHINE, { recursive: true, force: true });
}

/** The compiled sample app, started as `npm start` starts it. */
export class SampleApp {
  stdout = '';
  stderr = '';
  readonly #process: ChildProcess;
  readonly #closed: Promise<unknown[]>;

  constructor(args: string[], env: NodeJS.ProcessEnv = {}, folder = `${ROOT}dist-sample`) {
    this.#process = spawn(process.execPath, [join(folder, 'sample-app/demonstration/main.js'), ...args], {
      cwd: ROOT,
      env: { ...process.env, REDIS_URL: '', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    killWithParent(this.#process);
    this.#process.stdout!.setEncoding('utf8').on('data', (text: string) => (this.stdout += text));
    this.#process.stderr!.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
    this.#closed = once(this.#process, 'close');
  }

  /** As on a machine without redis-server and apt: a copy beside which no server was unpacked, with nothing on its PATH. */
  static async onBareMachine(args: string[]): Promise<SampleApp> {
    await cp(`${ROOT}dist-sample`, BARE_MACHINE, { recursive: true });
    await writeFile(join(BARE_MACHINE, 'package.json'), '{ "type": "module" }');
    await writeFile(join(BARE_MACHINE, 'package-lock.json'), '{}'); // the mark of the folder that .redis/ stands in
    return new SampleApp(args, { REDIS_SERVER: '', PATH: join(BARE_MACHINE, 'no-such-folder') }, BARE_MACHINE);
  }

  async exitCode(): Promise<number | null> {
    const [code] = (await this.#closed) as [number | null];
    return code;
  }

  kill(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  get figures(): Figures & { problems: string[] } {
    return JSON.parse(this.stdout) as Figures & { problems: string[] };
  }

  /** The addresses that `--serve` prints, by their names. */
  async addresses(): Promise<Record<string, string>> {
    const line = await until(() => /^ *export (.*)$/m.exec(this.stdout)?.[1], {
      what: 'the shop is open',
      timeoutMs: 60_000,
    });
    return Object.fromEntries(line.split(' ').map((pair) => pair.split('=') as [string, string]));
  }
}
