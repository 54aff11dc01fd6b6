import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { libraryPath, unpackProgram, type Apt } from './unpack-program.js';

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

/** Unpacks a server from packages into `target`; the executable there starts it. */
export function unpackServer(target: string, server: PackagedServer): Promise<void> {
  return unpackProgram(target, {
    executable: server.executable,
    download: (apt) => download(apt, server),
    wrapperScript: (tree) => wrapperScript(tree, server),
  });
}

async function download(apt: Apt, server: PackagedServer): Promise<void> {
  const { executable, suite } = server;
  await apt.get([], '--quiet', 'update');
  const options: string[] = [];
  if (suite) {
    const codename = suite === 'backports' ? `${release()}-backports` : suite;
    options.push(
      ...(await withSuites(apt, server, suite === 'experimental' ? ['sid', suite] : [codename])),
      '-t',
      codename,
    );
    await apt.get(options, '--quiet', 'update');
  }
  // The binary is in the tools; the package of the server holds the link that gives it its name.
  const tools = executable.replace('-server', '-tools');
  const missing = await apt.missing(tools, options);
  const needed = isWhole(server) ? missing.filter((name) => /^(lib|zlib)/.test(name)) : missing;
  await apt.download([executable, tools, ...needed], options);
}

/** Adds suites of the mirror that the system uses. @returns the options of apt that name them */
async function withSuites(apt: Apt, server: PackagedServer, suites: readonly string[]): Promise<string[]> {
  const targets = await apt.get([], 'indextargets', '--format', '$(REPO_URI) $(COMPONENT)', 'Identifier: Packages');
  const mirror = /^(\S+\/debian\/?) main$/m.exec(targets)?.[1];
  if (mirror === undefined) throw new Error('apt has no mirror of Debian');
  const system = '/etc/apt/sources.list';
  const others = isWhole(server) || !existsSync(system) ? '' : readFileSync(system, 'utf8');
  const key = '[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]';
  const sources = join(apt.work, 'sources.list');
  writeFileSync(sources, [others, ...suites.map((suite) => `deb ${key} ${mirror} ${suite} main`), ''].join('\n'));
  const lists = ['-o', `Dir::Etc::sourcelist=${sources}`];
  if (!isWhole(server)) return lists;
  const installed = join(apt.work, 'nothing-installed');
  writeFileSync(installed, '');
  return [...lists, '-o', 'Dir::Etc::sourceparts=/dev/null', '-o', `Dir::State::status=${installed}`];
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
  const libraries = libraryPath(tree);
  const program = `"$here/unpacked/usr/bin/${server.executable}" "$@"`;
  const here = '#!/bin/sh\nhere=$(cd "$(dirname "$0")" && pwd)\n';
  if (isWhole(server)) {
    // Another library of C needs its own loader.
    const files = readdirSync(tree, { recursive: true, encoding: 'utf8' });
    const loader = files.find((file) => basename(file).startsWith('ld-linux'));
    if (loader === undefined) throw new Error('the packages have no loader (ld-linux)');
    return `${here}exec "$here/unpacked/${loader}" --library-path "${libraries}" --argv0 ${server.executable} ${program}\n`;
  }
  return `${here}export LD_LIBRARY_PATH="${libraries}\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\nexec ${program}\n`;
}
