import { existsSync, lstatSync, mkdirSync, readdirSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { firstError, firstIn, foldersOnPath, isExecutable, ownFolder } from './find-redis-server.js';
import { libraryPath, unpackProgram, type Apt } from './unpack-program.js';

const ADVICE =
  'install one (`apt-get install postgresql`, `brew install postgresql`) or set POSTGRES_SERVER=/path/to/postgres, which has initdb beside it';

/** The path of `postgres` in the first of: `POSTGRES_SERVER`, the `PATH`, the folders of Debian, the private copy in `.postgres/`. */
function find(): string | undefined {
  const chosen = process.env.POSTGRES_SERVER;
  if (chosen && !(isExecutable(chosen) && hasInitdb(dirname(chosen)))) {
    throw new Error(
      `POSTGRES_SERVER must name an executable file that has initdb next to it, got "${chosen}": correct or unset it.`,
    );
  }
  const folders = [...foldersOnPath(), ...foldersOfDebian('/'), privateFolder()].filter(hasInitdb);
  return chosen || firstIn(folders, 'postgres');
}

function hasInitdb(folder: string): boolean {
  return isExecutable(join(folder, 'initdb'));
}

/**
 * Finds a PostgreSQL server, or else unpacks a private copy from the distribution's packages. Needs no root, installs nothing, and may
 * run in two processes at once.
 * @returns the path of `postgres`, which has `initdb` beside it
 */
export async function providePostgres(): Promise<string> {
  const found = find();
  if (found !== undefined) return found;
  const folder = privateFolder();
  try {
    linkInitdb(folder);
    await unpackProgram(folder, { executable: 'postgres', download, wrapperScript });
  } catch (cause) {
    throw new Error(
      `No PostgreSQL on the PATH or in .postgres/, and none could be unpacked by apt-get and dpkg (${firstError(cause)}): ${ADVICE}.`,
      { cause },
    );
  }
  return join(folder, 'postgres');
}

/** The script that will start the server starts what it is called by. Until it is there the link leads nowhere. */
function linkInitdb(folder: string): void {
  mkdirSync(folder, { recursive: true });
  try {
    symlinkSync('postgres', join(folder, 'initdb'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

async function download(apt: Apt): Promise<void> {
  await apt.get([], '--quiet', 'update');
  const missing = await apt.missing('postgresql');
  const server = missing.find((name) => /^postgresql-\d+$/.test(name));
  if (server === undefined) throw new Error('apt has no package of a PostgreSQL server');
  // Not what compiles queries, nor what manages several servers.
  await apt.download([server, ...missing.filter((name) => name.startsWith('lib') && !/llvm|perl/.test(name))]);
}

/** Finds the unpacked programs and libraries from its own place. `exec` keeps the pid. */
function wrapperScript(tree: string): string {
  const [bin] = foldersOfDebian(tree);
  if (bin === undefined) throw new Error('the package has no server');
  return `#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="${libraryPath(tree)}\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/unpacked/${bin.slice(tree.length + 1)}/$(basename "$0")" "$@"
`;
}

/** Where the packages of Debian have the programs of each version. */
function foldersOfDebian(root: string): string[] {
  const versions = join(root, 'usr/lib/postgresql');
  return existsSync(versions) ? readdirSync(versions).map((version) => join(versions, version, 'bin')) : [];
}

/**
 * PostgreSQL does not run as root, and whom it runs as instead must get to its files.
 * @throws Error when another user has made the folder, and could have put anything there
 */
export function privateFolder(program = 'postgres'): string {
  const own = ownFolder(`.${program}`);
  if (process.getuid?.() !== 0 || isOpenToAll(dirname(own))) return own;
  const folder = join(tmpdir(), `nest-redis-lock-${program}`);
  mkdirSync(folder, { recursive: true });
  if (lstatSync(folder).uid !== 0) throw new Error(`${folder} belongs to another user: remove it`);
  return folder;
}

function isOpenToAll(folder: string): boolean {
  const isOpen = (statSync(folder).mode & 0o001) !== 0;
  return isOpen && (dirname(folder) === folder || isOpenToAll(dirname(folder)));
}
