import { execFile } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A program in the packages of Debian or Ubuntu. */
export interface PackagedProgram {
  /** The name of the script that starts it. */
  readonly executable: string;
  /** Downloads its packages, and those that it needs. */
  download(apt: Apt): Promise<void>;
  /** The script that starts it. @param tree where the packages are unpacked; the script finds that beside itself */
  wrapperScript(tree: string): string;
}

/**
 * Unpacks a program from packages into `target`; the executable there starts it. Needs no root, and installs nothing.
 * Two processes may do it at once: each works in a folder of its own and publishes by an atomic rename.
 */
export async function unpackProgram(target: string, program: PackagedProgram): Promise<void> {
  const work = join(target, `unpacking-${process.pid}`);
  const packages = join(work, 'packages');
  const tree = join(work, 'unpacked');
  const wrapper = join(work, program.executable);
  try {
    for (const folder of ['state/lists/partial', 'cache/archives/partial', 'packages', 'unpacked']) {
      mkdirSync(join(work, folder), { recursive: true });
    }
    await program.download(new Apt(work, packages));
    for (const file of readdirSync(packages)) await run('dpkg', ['-x', join(packages, file), tree]);
    writeFileSync(wrapper, program.wrapperScript(tree));
    // Also where the umask forbids it: as root, a server runs as somebody else.
    for (const path of [target, tree, wrapper]) chmodSync(path, 0o755);
    await run(wrapper, ['--version']);
    // The wrapper comes last: whoever sees it sees a complete tree. A tree already there is another process's.
    renameUnlessTaken(tree, join(target, 'unpacked'));
    renameSync(wrapper, join(target, program.executable));
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** apt with folders of its own, so that it works before any `apt-get update`, without root and without a lock. */
export class Apt {
  /** @param work a folder for its own files; the packages come into the other one */
  constructor(
    readonly work: string,
    private readonly destination: string,
  ) {}

  /** The packages that the installation of this one would add to those that are installed. */
  async missing(name: string, options: readonly string[] = []): Promise<string[]> {
    const plan = await this.get(options, '--simulate', '--no-install-recommends', 'install', name);
    // "Inst name (version)" is new here; "Inst name [old] (version)" would only upgrade a library that is there already.
    return [...plan.matchAll(/^Inst (\S+) \(/gm)].map((match) => match[1]!);
  }

  /** Downloads these packages, without those that they need. */
  async download(names: Iterable<string>, options: readonly string[] = []): Promise<void> {
    await this.get(options, '--quiet', 'download', ...new Set(names));
  }

  /**
   * Adds suites of the mirror of Debian that the system uses.
   * @param isWhole as if nothing were installed: a newer suite needs its own libraries, the one of C included
   * @returns the options that name them
   */
  async addSuites(suites: readonly string[], isWhole: boolean): Promise<string[]> {
    await this.get([], '--quiet', 'update');
    const targets = await this.get([], 'indextargets', '--format', '$(REPO_URI) $(COMPONENT)', 'Identifier: Packages');
    const mirror = /^(\S+\/debian\/?) main$/m.exec(targets)?.[1];
    if (mirror === undefined) throw new Error('apt has no mirror of Debian');
    const system = '/etc/apt/sources.list';
    const others = isWhole || !existsSync(system) ? '' : readFileSync(system, 'utf8');
    const key = '[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]';
    const sources = join(this.work, 'sources.list');
    writeFileSync(sources, [others, ...suites.map((suite) => `deb ${key} ${mirror} ${suite} main`), ''].join('\n'));
    const options = ['-o', `Dir::Etc::sourcelist=${sources}`, '-t', suites.at(-1)!];
    if (isWhole) {
      const installed = join(this.work, 'nothing-installed');
      writeFileSync(installed, '');
      options.push('-o', 'Dir::Etc::sourceparts=/dev/null', '-o', `Dir::State::status=${installed}`);
    }
    await this.get(options, '--quiet', 'update');
    return options;
  }

  async get(further: readonly string[], ...args: string[]): Promise<string> {
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

/** The folders of an unpacked tree that have libraries in them, as the wrapper script beside it names them. */
export function libraryPath(tree: string): string {
  const files = readdirSync(tree, { recursive: true, encoding: 'utf8' });
  const folders = new Set(files.filter((file) => /\.so(\.|$)/.test(file)).map((file) => dirname(file)));
  return ['usr/lib', ...folders].map((folder) => `$here/unpacked/${folder}`).join(':');
}

/**
 * What starts a program that has its own library of C, whose loader is in the packages, too.
 * @param program its path in the tree
 */
export function byOwnLoader(tree: string, program: string): string {
  const files = readdirSync(tree, { recursive: true, encoding: 'utf8' });
  const loader = files.find((file) => basename(file).startsWith('ld-linux'));
  if (loader === undefined) throw new Error('the packages have no loader (ld-linux)');
  return `"$here/unpacked/${loader}" --library-path "${libraryPath(tree)}" --argv0 ${basename(program)} "$here/unpacked/${program}"`;
}

function renameUnlessTaken(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}
