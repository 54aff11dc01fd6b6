import { mkdirSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { privateFolder } from './find-postgres.js';
import { firstError, firstIn, foldersOnPath, isExecutable } from './find-redis-server.js';
import { libraryPath, unpackProgram, type Apt } from './unpack-program.js';

const INSTALL = 'mariadb-install-db';

/** The programs of a MariaDB. */
export interface MariaDbPrograms {
  readonly server: string;
  /** Makes the files of a new server. */
  readonly install: string;
}

/** A MariaDB server on the `PATH`, in `/usr/sbin` or in `.mariadb/`. */
export function findMariaDb(): MariaDbPrograms | undefined {
  const folders = [...foldersOnPath(), '/usr/sbin', privateFolder('mariadb')];
  const server = firstIn(folders, 'mariadbd');
  const install = firstIn(server === undefined ? [] : [dirname(server), ...folders, '/usr/bin'], INSTALL);
  return server === undefined || install === undefined ? undefined : { server, install };
}

/**
 * Finds a MariaDB server, or else unpacks it into `.mariadb/` from the distribution's packages. Needs no root, installs nothing, and may
 * run in two processes at once.
 */
export async function provideMariaDb(): Promise<MariaDbPrograms> {
  const found = findMariaDb();
  if (found) return found;
  const own = privateFolder('mariadb');
  try {
    linkInstall(own);
    await unpackProgram(own, { executable: 'mariadbd', download, wrapperScript });
  } catch (cause) {
    throw new Error(
      `No MariaDB on the PATH or in .mariadb/, and none could be unpacked by apt-get and dpkg (${firstError(cause)}): ` +
        'install it (`apt-get install mariadb-server`).',
      { cause },
    );
  }
  return { server: join(own, 'mariadbd'), install: join(own, INSTALL) };
}

/** The script that will start the server starts what it is called by. Until it is there the link leads nowhere. */
function linkInstall(folder: string): void {
  mkdirSync(folder, { recursive: true });
  if (isExecutable(join(folder, INSTALL))) return;
  try {
    symlinkSync('mariadbd', join(folder, INSTALL));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

async function download(apt: Apt): Promise<void> {
  await apt.get([], '--quiet', 'update');
  const missing = await apt.missing('mariadb-server');
  await apt.download(missing.filter((name) => /^(mariadb-(server|client|common)|lib(aio|uring|mariadb))/.test(name)));
}

/** Finds the unpacked programs and libraries from its own place. `exec` keeps the pid. */
function wrapperScript(tree: string): string {
  return `#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="${libraryPath(tree)}\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
usr="$here/unpacked/usr"
if [ "$(basename "$0")" = ${INSTALL} ]; then exec "$usr/bin/${INSTALL}" "$@" --basedir="$usr"; fi
exec "$usr/sbin/mariadbd" "$@" --basedir="$usr" --lc-messages-dir="$usr/share/mysql" --plugin-dir="$usr/lib/mysql/plugin"
`;
}
