import { join } from 'node:path';
import { firstError, firstIn, isExecutable, ownFolder } from './find-redis-server.js';
import { byOwnLoader, unpackProgram, type Apt } from './unpack-program.js';

/** The `mysqld` that `MYSQL_SERVER` names, if it names one. */
export function chosenMysql(): string | undefined {
  const chosen = process.env.MYSQL_SERVER;
  if (chosen && !isExecutable(chosen)) {
    throw new Error(`MYSQL_SERVER must name an executable mysqld, got "${chosen}": correct or unset it.`);
  }
  return chosen || undefined;
}

/**
 * Finds a MySQL by `MYSQL_SERVER` or in `.mysql/`, or else unpacks it there from the unstable suite of Debian, with all libraries.
 * Needs no root, installs nothing, and may run in two processes at once. The `PATH` is not searched: there `mysqld` is often a MariaDB.
 * @returns the path of `mysqld`
 */
export async function provideMysql(own = ownFolder('.mysql')): Promise<string> {
  const found = chosenMysql() ?? firstIn([own], 'mysqld');
  if (found !== undefined) return found;
  try {
    await unpackProgram(own, { executable: 'mysqld', download, wrapperScript });
  } catch (cause) {
    throw new Error(
      `No MySQL in .mysql/, and none could be unpacked by apt-get and dpkg (${firstError(cause)}): ` +
        'set MYSQL_SERVER=/path/to/mysqld.',
      { cause },
    );
  }
  return join(own, 'mysqld');
}

async function download(apt: Apt): Promise<void> {
  const sid = await apt.addSuites(['sid'], true);
  const missing = await apt.missing('mysql-server-core', sid);
  await apt.download(
    missing.filter((name) => /^(mysql|lib|zlib)/.test(name)),
    sid,
  );
}

/** Finds the unpacked program from its own place. `exec` keeps the pid. `--no-defaults` has to come first. */
function wrapperScript(tree: string): string {
  return `#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
usr="$here/unpacked/usr"
[ "$1" = --no-defaults ] || set -- --no-defaults "$@"
exec ${byOwnLoader(tree, 'usr/sbin/mysqld')} "$@" --basedir="$usr" --lc-messages-dir="$usr/share/mysql" --plugin-dir="$usr/lib/mysql/plugin"
`;
}
