import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A server in the packages of Debian or Ubuntu. */
export interface PackagedServer {
  /** Its executable, and one of its packages; the other one ends with `-tools`. */
  readonly executable: 'redis-server' | 'valkey-server' | 'redict-server';
  /**
   * Where the packages are, of Debian. Those of `sid` and `experimental` come with all libraries, that of C included, since those of
   * the machine may be too old. Default: the sources of the system.
   */
  readonly suite?: 'backports' | 'sid' | 'experimental';
}

/**
 * Unpacks a server from packages into `target`; the executable there starts it. Needs no root, and installs nothing.
 * Two processes may do it at once: each works in a folder of its own and publishes by an atomic rename.
 */
export async function unpackServer(target: string, server: PackagedServer): Promise<void> {
  const work = join(target, `unpacking-${process.pid}`);
  const packages = join(work, 'packages');
  const tree = join(work, 'unpacked');
  const wrapper = join(work, server.executable);
  try {
    for (const folder of ['state/lists/partial', 'cache/archives/partial', 'packages', 'unpacked']) {
      mkdirSync(join(work, folder), { recursive: true });
    }
    await new Apt(work, packages, server).download();
    for (const file of readdirSync(packages)) await run('dpkg', ['-x', join(packages, file), tree]);
    writeFileSync(wrapper, wrapperScript(tree, server), { mode: 0o755 });
    await run(wrapper, ['--version']);
    // The wrapper comes last: whoever sees it sees a complete tree. A tree already there is another process's.
    renameUnlessTaken(tree, join(target, 'unpacked'));
    renameSync(wrapper, join(target, server.executable));
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** apt with folders of its own, so that it works before any `apt-get update`, without root and without a lock. */
class Apt {
  readonly #sources: string;
  readonly #isWhole: boolean;

  constructor(
    private readonly work: string,
    private readonly destination: string,
    private readonly server: PackagedServer,
  ) {
    this.#sources = join(work, 'sources.list');
    this.#isWhole = isWhole(server);
  }

  async download(): Promise<void> {
    const { executable, suite } = this.server;
    await this.#get([], '--quiet', 'update');
    const options: string[] = [];
    if (suite) {
      const codename = suite === 'backports' ? `${release()}-backports` : suite;
      await this.#addSource(suite === 'experimental' ? ['sid', suite] : [codename]);
      options.push(...this.#withSources(), '-t', codename);
      await this.#get(options, '--quiet', 'update');
    }
    // The binary is in the tools; the package of the server holds the link that gives it its name.
    const tools = executable.replace('-server', '-tools');
    const plan = await this.#get(options, '--simulate', '--no-install-recommends', 'install', tools);
    // "Inst name (version)" is new here; "Inst name [old] (version)" would only upgrade a library that is there already.
    const missing = [...plan.matchAll(/^Inst (\S+) \(/gm)].map((match) => match[1]!);
    const needed = this.#isWhole ? missing.filter((name) => /^(lib|zlib)/.test(name)) : missing;
    await this.#get(options, '--quiet', 'download', ...new Set([executable, tools, ...needed]));
  }

  /** Adds suites of the mirror that the system uses. */
  async #addSource(suites: readonly string[]): Promise<void> {
    const targets = await this.#get([], 'indextargets', '--format', '$(REPO_URI) $(COMPONENT)', 'Identifier: Packages');
    const mirror = /^(\S+\/debian\/?) main$/m.exec(targets)?.[1];
    if (mirror === undefined) throw new Error('apt has no mirror of Debian');
    const system = '/etc/apt/sources.list';
    const others = this.#isWhole || !existsSync(system) ? '' : readFileSync(system, 'utf8');
    const key = '[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]';
    writeFileSync(
      this.#sources,
      [others, ...suites.map((suite) => `deb ${key} ${mirror} ${suite} main`), ''].join('\n'),
    );
  }

  #withSources(): string[] {
    const lists = ['-o', `Dir::Etc::sourcelist=${this.#sources}`];
    if (!this.#isWhole) return lists;
    const installed = join(this.work, 'nothing-installed');
    writeFileSync(installed, '');
    return [...lists, '-o', 'Dir::Etc::sourceparts=/dev/null', '-o', `Dir::State::status=${installed}`];
  }

  async #get(further: readonly string[], ...args: string[]): Promise<string> {
    const options = [
      `Dir::State=${join(this.work, 'state')}`,
      `Dir::Cache=${join(this.work, 'cache')}`,
      // The system's own record of what is installed: those libraries need no second copy.
      'Dir::State::status=/var/lib/dpkg/status',
      // When root runs this, apt would turn into a user who may not write into our folders.
      'APT::Sandbox::User=root',
      'Acquire::Languages=none',
      'Acquire::Retries=3',
    ].flatMap((option) => ['-o', option]);
    const env = { ...process.env, LC_ALL: 'C' };
    const limits = { cwd: this.destination, timeout: 180_000, maxBuffer: 2 ** 24, env };
    return (await run('apt-get', [...options, ...further, ...args], limits)).stdout;
  }
}

/** Whether all libraries are unpacked, too. */
function isWhole({ suite }: PackagedServer): boolean {
  return suite === 'sid' || suite === 'experimental';
}

/** The code name of the system, such as `bookworm`. */
function release(): string {
  const codename = /^VERSION_CODENAME=(\S+)$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1];
  if (codename === undefined) throw new Error('/etc/os-release has no VERSION_CODENAME');
  return codename;
}

/** Finds the unpacked libraries from its own place, so that this one path starts the server. `exec` keeps the pid. */
function wrapperScript(tree: string, server: PackagedServer): string {
  const files = readdirSync(tree, { recursive: true, encoding: 'utf8' });
  const folders = new Set(files.filter((file) => /\.so(\.|$)/.test(file)).map((file) => dirname(file)));
  const libraries = ['usr/lib', ...folders].map((folder) => `$here/unpacked/${folder}`).join(':');
  const program = `"$here/unpacked/usr/bin/${server.executable}" "$@"`;
  const here = '#!/bin/sh\nhere=$(cd "$(dirname "$0")" && pwd)\n';
  if (isWhole(server)) {
    // Another library of C needs its own loader.
    const loader = files.find((file) => basename(file).startsWith('ld-linux'));
    if (loader === undefined) throw new Error('the packages have no loader (ld-linux)');
    return `${here}exec "$here/unpacked/${loader}" --library-path "${libraries}" --argv0 ${server.executable} ${program}\n`;
  }
  return `${here}export LD_LIBRARY_PATH="${libraries}\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\nexec ${program}\n`;
}

function renameUnlessTaken(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}
