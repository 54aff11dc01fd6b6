import { readFileSync } from 'node:fs';
import { byOwnLoader, libraryPath, unpackProgram, type Apt } from './unpack-program.js';

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
  let options: string[] = [];
  if (suite === undefined) await apt.get([], '--quiet', 'update');
  else {
    const codename = suite === 'backports' ? `${release()}-backports` : suite;
    options = await apt.addSuites(suite === 'experimental' ? ['sid', suite] : [codename], isWhole(server));
  }
  // The binary is in the tools; the package of the server holds the link that gives it its name.
  const tools = executable.replace('-server', '-tools');
  const missing = await apt.missing(tools, options);
  const needed = isWhole(server) ? missing.filter((name) => /^(lib|zlib)/.test(name)) : missing;
  await apt.download([executable, tools, ...needed], options);
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
  const program = `usr/bin/${server.executable}`;
  const here = '#!/bin/sh\nhere=$(cd "$(dirname "$0")" && pwd)\n';
  if (isWhole(server)) return `${here}exec ${byOwnLoader(tree, program)} "$@"\n`;
  return `${here}export LD_LIBRARY_PATH="${libraryPath(tree)}\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\nexec "$here/unpacked/${program}" "$@"\n`;
}
