import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Figures } from '../../sample-app/demonstration/demonstration.js';
import { killWithParent } from '../../servers/kill-with-parent.js';
import { compileLibrary, compileModule } from '../support/compiled-library.js';
import { archiveOfPGlite } from '../support/prepared-pglite.js';
import { until } from '../support/until.js';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const COMPILED = `${ROOT}node_modules/.cache/nest-redis-lock-sample-${process.pid}`;
const BARE_MACHINE = `${COMPILED}-alone`;

/** Compiles the sample app like `npm start`, without its types: `npm run types` checks those. Its PGlite is prepared. */
export async function compileSampleApp(): Promise<void> {
  for (const folder of ['sample-app', 'servers']) {
    for (const file of readdirSync(ROOT + folder, { recursive: true, encoding: 'utf8' })) {
      if (!file.endsWith('.ts')) continue;
      compileModule(join(ROOT, folder, file), join(COMPILED, folder, file.replace(/\.ts$/, '.js')));
    }
  }
  symlinkSync(compileLibrary(), join(COMPILED, 'lib'));
  // A package finds itself by its name.
  const manifest = {
    name: 'nest-redis-lock',
    type: 'module',
    exports: { '.': './lib/index.js', './sql': './lib/sql/index.js' },
  };
  writeFileSync(join(COMPILED, 'package.json'), JSON.stringify(manifest));
  const pglite = join(COMPILED, 'node_modules/@electric-sql/pglite');
  mkdirSync(pglite, { recursive: true });
  writeFileSync(join(pglite, 'package.json'), JSON.stringify({ type: 'module', exports: './index.js' }));
  writeFileSync(
    join(pglite, 'index.js'),
    `import { readFileSync } from 'node:fs';
    import { PGlite as Unprepared } from '${pathToFileURL(`${ROOT}node_modules/@electric-sql/pglite/dist/index.js`)}';
    const loadDataDir = new Blob([readFileSync('${await archiveOfPGlite()}')]);
    export const PGlite = { create: () => Unprepared.create({ loadDataDir }) };`,
  );
}

export function removeSampleApp(): void {
  for (const folder of [COMPILED, BARE_MACHINE]) rmSync(folder, { recursive: true, force: true });
}

/** The compiled sample app, started like `npm start`. */
export class SampleApp {
  stdout = '';
  stderr = '';
  readonly #process: ChildProcess;
  readonly #closed: Promise<unknown[]>;

  constructor(args: string[], env: NodeJS.ProcessEnv = {}, folder = COMPILED) {
    const program = join(folder, 'sample-app/demonstration/main.js');
    this.#process = spawn(process.execPath, [...process.execArgv, program, ...args], {
      cwd: ROOT,
      env: { ...process.env, REDIS_URL: '', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    killWithParent(this.#process);
    this.#process.stdout!.setEncoding('utf8').on('data', (text: string) => (this.stdout += text));
    this.#process.stderr!.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
    this.#closed = once(this.#process, 'close');
  }

  /** As on a machine without redis-server and apt: a copy without an unpacked server, and an empty PATH. */
  static onBareMachine(args: string[]): SampleApp {
    cpSync(COMPILED, BARE_MACHINE, { recursive: true });
    writeFileSync(join(BARE_MACHINE, 'package-lock.json'), '{}'); // the mark of the folder that contains .redis/
    return new SampleApp(args, { REDIS_SERVER: '', PATH: join(BARE_MACHINE, 'no-such-folder') }, BARE_MACHINE);
  }

  async exitCode(): Promise<number | null> {
    const [code] = (await this.#closed) as [number | null];
    return code;
  }

  kill(signal: NodeJS.Signals): void {
    process.kill(this.#process.pid!, signal); // by number: Deno treats a child as ended after `child.kill()`, whatever the child does
  }

  get figures(): Figures & { problems: string[] } {
    return JSON.parse(this.stdout) as Figures & { problems: string[] };
  }

  /** The addresses that `--serve` prints, by name. */
  async addresses(): Promise<Record<string, string>> {
    const line = await until(() => /^ *export (.*)$/m.exec(this.stdout)?.[1], {
      what: 'the shop is open',
      timeoutMs: 240_000,
    });
    return Object.fromEntries(line.split(' ').map((pair) => pair.split('=') as [string, string]));
  }
}
